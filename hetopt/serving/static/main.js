// The page: an instance on the left, its plan on the right.

import { $, billions, count, el, fill, plural, share, time } from "./tools.js";
import { complain, get, post } from "./asking.js";
import * as live from "./live.js";
import * as board from "./board.js";

let instance = null;

const WHY = { time: "time limit reached", interrupted: "stopped", finished: "every planner finished", gap: "gap target reached", memory: "memory limit reached" };

/** Open an instance or a plan file that the server has read. */
async function open(path, body) {
  const fields = document.querySelector("#source fieldset");
  fields.disabled = true;
  try {
    posed(await post(path, body));
    complain($("source-error"), null);
  } catch (error) {
    complain($("source-error"), error);
  } finally {
    fields.disabled = false;
  }
}

function posed(other) {
  instance = other;
  board.clear(other);
  live.clear();
  complain($("plan-error"), null);
  $("status").textContent = "";
  $("go").disabled = false;
  fill($("instance"),
    el("h3", {}, other.name),
    el("p", {}, `${plural(other.gpus, "GPU")} on ${other.nodes.join(", ")}; ${other.layers} layers, ${billions(other.parameters)} parameters; `
      + `${count(other.global_batch)} × ${count(other.sequence_length)} tokens per iteration. `,
      el("strong", {}, `No plan takes less than ${time(other.bound_us)}.`)),
    el("p", { class: "soft" }, other.source ?? ""));
  if (other.board) board.show(other.board);
}

async function go() {
  if (live.running() || instance === null) return;
  complain($("plan-error"), null);
  const seconds = Number($("time-limit").value);
  busy(true);
  try {
    board.clear(instance);
    await live.plan(instance.digest, Number.isFinite(seconds) ? seconds : 0, done);
    $("status").textContent = "Starting …";
  } catch (error) {
    busy(false);
    complain($("plan-error"), error);
  }
}

function busy(now) {
  $("go").hidden = now;
  $("stop").hidden = !now;
  $("stop").disabled = false;
  document.querySelector("#source fieldset").disabled = now;
  document.body.classList.toggle("planning", now);
}

function done(event) {
  const held = document.activeElement === $("stop");
  busy(false);
  if (held) $("go").focus();
  if (event === null) return;
  $("status").textContent = verdict(event);
  if (event.board) board.show(event.board);
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

function fillExamples(library) {
  const families = new Map();
  for (const [name, about] of Object.entries(library)) {
    const [family, own] = name.split("/");
    if (!families.has(family)) families.set(family, el("optgroup", { label: family }));
    families.get(family).append(el("option", { value: name, title: about }, `${own}: ${about}`));
  }
  $("example").append(...families.values());
}

async function start() {
  board.begin();
  $("go").addEventListener("click", go);
  $("stop").addEventListener("click", () => {
    $("stop").disabled = true;
    $("status").textContent = "Stopping: what is found so far is kept …";
    live.stop().catch((error) => complain($("plan-error"), error));
  });
  $("time-limit").addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
  $("example").addEventListener("change", (event) => {
    $("upload").value = "";
    if (event.target.value) open("api/instances/named", { name: event.target.value });
  });
  $("upload").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    $("example").value = "";
    if (file) open("api/instances/file", { name: file.name, text: await file.text() });
  });
  const [state, library] = await Promise.all([get("api/state"), get("api/library")]);
  fillExamples(library);
  $("time-limit").value = state.time_limit;
  if (state.instance === null) return;
  posed({ ...state.instance, board: state.job === null ? state.board : null });
  $("example").value = state.instance.name in library ? state.instance.name : "";
  if (state.job !== null) {
    busy(true);
    live.watch(state.job, done);
  }
}

start().catch((error) => complain($("plan-error"), error));
