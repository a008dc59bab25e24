// Elements without markup in strings, and numbers as people read them.

export const $ = (id) => document.getElementById(id);

/** An element with attributes (`on…` are listeners, null is left out) and children. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Put children, those that are there, in place of what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

export const svg = (tag, attributes = {}, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

const grouped = (value, digits) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** Units of long times: seconds of one, and of how many on they are used. */
const LONG = [["years", 31557600, 2], ["days", 86400, 2], ["h", 3600, 1], ["min", 60, 10]];
const digits = (value, most) => grouped(value, value >= 100 ? most - 2 : value >= 10 ? 1 : value >= 1 ? 2 : most);

/** Microseconds with three to four significant digits, as `hetopt` prints them. */
export function time(us) {
  if (us === null || us === undefined) return "–";
  const seconds = Math.abs(us) / 1e6;
  const sign = us < 0 ? "−" : "";
  const long = LONG.find(([, size, least]) => seconds >= least * size);
  const many = seconds / long?.[1];
  if (long) return `${sign}${Number.isInteger(many) ? count(many) : digits(many, 2)} ${long[0]}`;
  if (seconds >= 100) return `${sign}${grouped(seconds, 1)} s`;
  if (seconds >= 1) return `${sign}${grouped(seconds, 2)} s`;
  if (seconds >= 0.1) return `${sign}${grouped(seconds * 1e3, 1)} ms`;
  if (!seconds) return "0 s";
  return seconds >= 1e-4 ? `${sign}${digits(seconds * 1e3, 3)} ms` : `${sign}${digits(seconds * 1e6, 3)} µs`;
}

export const share = (value) => value === null || value === undefined ? "–" : `${(100 * value).toFixed(2)}%`;

export const count = (value) => grouped(value, 0);

export function billions(parameters) {
  return parameters >= 1e9
    ? `${Number((parameters / 1e9).toPrecision(3))} B`
    : `${Number((parameters / 1e6).toPrecision(3))} M`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
