// What is asked of the server; what is wrong comes back as an error.

export class Refused extends Error {
  constructor(error) {
    super(error.message);
  }
}

async function answered(response) {
  let document = null;
  try {
    document = await response.json();
  } catch {
    document = { error: { message: `the server answered ${response.status}` } };
  }
  // null is an answer, too: there is none of what was asked for.
  if (!response.ok || document?.error) throw new Refused(document?.error ?? { message: "no answer" });
  return document;
}

async function sent(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused({ message: "The server does not answer: start `hetopt serve` again, and open the address that it prints." });
  }
  return answered(response);
}

export const get = (path) => sent(path);

export const post = (path, body = {}) =>
  sent(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

/** Save a file that the server makes, under a name. */
export async function keep(path, name) {
  const response = await fetch(path);
  if (!response.ok) await answered(response);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Say or unsay what is wrong in an element. */
export function complain(where, error) {
  where.hidden = !error;
  where.textContent = !error ? "" : error instanceof Refused ? error.message : `A bug of this page: ${error.message}`;
}
