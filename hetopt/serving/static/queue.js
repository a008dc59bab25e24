// The live queue: what `hetopt status` knows, asked for again while the page is open.

import { $, count, el, fill } from "./tools.js";
import { complain, get, keep } from "./asking.js";

const ASK_MS = 5000;

/** Show the queue, where the server has one, and keep it fresh. */
export async function begin() {
  let found;
  try {
    found = await get("api/queue");
    complain($("queue-error"), null);
  } catch (error) {
    complain($("queue-error"), error);
  }
  if (found === null) return;
  $("queue").hidden = false;
  if (found) show(found);
  setTimeout(begin, ASK_MS);
}

function show(queue) {
  $("queue-about").textContent =
    `${queue.queue}: ${queue.engine}, policy ${queue.policy}. As the last pass of hetopt queue left it.`;
  fill($("queue-jobs").tBodies[0], ...queue.jobs.map(row));
}

function row(job) {
  const last = job.attempts.at(-1);
  return el("tr", {},
    el("th", { scope: "row" }, `${job.id} ${job.name}`),
    el("td", {}, job.state),
    el("td", {}, `${count(job.saved_step)} of ${count(job.steps)}`),
    el("td", {}, last ? Object.entries(last.nodes).map(([node, gpus]) => `${node}: ${gpus}`).join(", ") : "–"),
    el("td", {}, end(job)),
    el("td", {}, job.why ?? last?.why ?? "–"),
    el("td", {}, last ? el("button", { type: "button", onclick: () => plan(job) }, "plan.json") : null));
}

function plan(job) {
  keep(`api/queue/${job.id}/plan.json`, `${job.name}.json`)
    .then(() => complain($("queue-error"), null), (error) => complain($("queue-error"), error));
}

const clock = (seconds) => new Date(1000 * seconds).toLocaleString();

/** When a job ended or is foreseen to. */
const end = (job) => (job.outlook.end_s === null ? "–" : clock(job.outlook.end_s));
