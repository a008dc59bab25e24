// The page: an instance on the left, its plan on the right.

import { $, share, time } from "./tools.js";
import { complain, get } from "./asking.js";
import * as source from "./source.js";
import * as live from "./live.js";
import * as board from "./board.js";
import * as queue from "./queue.js";

let instance = null;

const WHY = { time: "time limit reached", interrupted: "stopped", finished: "every planner finished", gap: "gap target reached", memory: "memory limit reached" };

/** Another instance: the plan shown is none of its. */
function posed(other) {
  const same = instance?.digest === other.digest;
  instance = other;
  if (same && !other.board) return;
  board.clear(other);
  live.clear();
  complain($("plan-error"), null);
  $("status").textContent = "";
  if (other.board) board.show(other.board, "the file’s plan");
}

async function go() {
  if (live.running()) return;
  complain($("plan-error"), null);
  if (!(await source.settled())) { $("source").scrollIntoView(); return; }
  const seconds = Number($("time-limit").value);
  busy(true);
  try {
    board.clear(instance);
    await live.plan(instance.digest, Number.isFinite(seconds) ? seconds : 0, done);
    $("status").textContent = "Starting …";
    if (innerWidth < 900) $("plan").scrollIntoView({ behavior: "smooth" });
  } catch (error) {
    busy(false);
    complain($("plan-error"), error);
  }
}

function busy(now) {
  $("go").hidden = now;
  $("stop").hidden = !now;
  $("stop").disabled = false;
  for (const field of document.querySelectorAll("#source fieldset")) field.disabled = now;
  for (const tab of document.querySelectorAll("#source [role=tab]")) tab.disabled = now;
  document.body.classList.toggle("planning", now);
}

function done(event) {
  const held = document.activeElement === $("stop");
  busy(false);
  if (held) $("go").focus();
  if (event === null) return;
  $("status").textContent = verdict(event);
  if (event.board) {
    board.show(event.board);
    // Beside the form, Plan and Stop stay where they are.
    if (innerWidth < 900) $("board").scrollIntoView({ block: "nearest", behavior: "smooth" });
  }
}

function verdict(event) {
  const why = event.stop === "proved" ? "" : ` (${WHY[event.stop] ?? event.stop})`;
  const after = `in ${event.seconds.toFixed(1)} s${why}`;
  if (event.status === "optimal") return `Proved optimal ${after}: no plan is shorter than ${time(event.objective)}.`;
  if (event.status === "feasible")
    return `Found ${time(event.objective)} ${after}; proved: no plan takes less than ${time(event.bound)}, so at most ${share(event.gap)} is lost.`;
  const reasons = event.reasons.slice(0, 4).join("; ");
  if (event.status === "infeasible") return `Proved ${after}: there is no plan. ${reasons}`;
  return `No plan was found ${after}. ${reasons}`;
}

async function start() {
  queue.begin();
  board.begin(async (node) => { await source.without(node); go(); });
  $("go").addEventListener("click", go);
  $("stop").addEventListener("click", () => {
    $("stop").disabled = true;
    $("status").textContent = "Stopping: what is found so far is kept …";
    live.stop().catch((error) => complain($("plan-error"), error));
  });
  $("time-limit").addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  const [state] = await Promise.all([get("api/state"), source.begin(posed)]);
  $("time-limit").value = state.time_limit;
  if (state.instance === null) { await source.build(); return; }
  source.show(state.instance);
  source.resume(state.instance);
  if (state.job !== null) {
    busy(true);
    live.watch(state.job, done);
  } else if (state.board !== null) board.show(state.board);
}

start().catch((error) => complain($("plan-error"), error));
