// The plan as the command line shows it, its picture and its files.

import { $, el, fill, share, time } from "./tools.js";
import { complain, keep } from "./asking.js";

let instance = null, now = null;

/** Listen to the buttons of the plan's files. */
export function begin() {
  for (const name of ["timeline", "explained"])
    $(`get-${name}`).addEventListener("click", () => kept(`${name}.html`, `${name}.html`, $(`get-${name}`)));
}

/** No plan is shown; another instance is. */
export function clear(other) {
  [instance, now] = [other, null];
  $("board").hidden = true;
}

/** Show a plan. */
export function show(board) {
  now = board;
  $("board").hidden = false;
  const whole = board.objective_us === null ? "It cannot be timed." : `${time(board.objective_us)} per iteration${board.valid ? "" : ", if it could run"}`;
  const proof = board.gap === null ? "" : board.gap === 0 ? "; proved: none is shorter" : `; at most ${share(board.gap)} from the best possible`;
  $("verdict").textContent = whole + proof;
  fill($("problems"),
    ...board.problems.map((problem) => el("li", {}, `⚠ ${problem}`)),
    ...board.warnings.map((warning) => el("li", { class: "warning" }, warning)));
  $("picture").hidden = !board.valid;
  if (board.valid) $("picture").src = `api/plans/${board.id}/plan.png`;
  fill($("stages").tHead, el("tr", {}, ...board.headings.map((heading) => el("th", { scope: "col" }, heading))));
  fill($("stages").tBodies[0], ...board.rows.map((row) => el("tr", {}, ...row.map((text) => el("td", {}, text)))));
  fill($("totals"), ...board.totals.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
  $("get-plan").href = `api/plans/${board.id}/plan.json`;
  $("get-instance").href = `api/instances/${instance.digest}/instance.yaml`;
}

/** Keep a file of the plan; the button waits for it. */
async function kept(path, name, button) {
  button.disabled = true;
  try {
    await keep(`api/plans/${now.id}/${path}`, name);
    complain($("plan-error"), null);
  } catch (error) {
    complain($("plan-error"), error);
  } finally {
    button.disabled = false;
  }
}
