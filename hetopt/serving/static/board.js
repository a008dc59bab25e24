// The plan as blocks that can be moved, each judged at once.

import { $, brief, el, fill, memory, plural, share, spans, time } from "./tools.js";
import { complain, get, keep, post } from "./asking.js";

let instance = null, trail = [], at = -1, chosen = null, swapping = false, onWithout = null;
let opened = new Set(); // pipelines that are shown though they are as those before
let asking = false, next = null; // one change at a time, and the last one asked for meanwhile

const now = () => trail[at]?.board;

/** Show plans of an instance; `without` is asked to plan anew without a node. */
export function begin(without) {
  onWithout = without;
  $("undo").addEventListener("click", () => go(at - 1));
  $("redo").addEventListener("click", () => go(at + 1));
  $("reset").addEventListener("click", reset);
  for (const name of ["timeline", "explained"])
    $(`get-${name}`).addEventListener("click", () => kept(`${name}.html`, `${name}.html`, $(`get-${name}`)));
  $("export").addEventListener("click", launchers);
  document.addEventListener("keydown", keys);
}

/** Keep a file of the plan; the button waits for it. */
async function kept(path, name, button) {
  button.disabled = true;
  try {
    await keep(`api/plans/${now().id}/${path}`, name);
    complain($("edit-error"), null);
  } catch (error) {
    complain($("edit-error"), error);
  } finally {
    button.disabled = false;
  }
}

/** Who can run the plan, each with its files; who cannot, with the reason. */
async function launchers() {
  const shown = !$("launchers").hidden;
  unlisted();
  if (shown) return;
  try {
    const rows = await get(`api/plans/${now().id}/launchers`);
    const able = rows.filter((row) => row.reason === null), others = rows.filter((row) => row.reason !== null);
    $("launchers").replaceChildren(
      el("p", {}, able.length ? "Files that launch it, for:" : "No trainer that is known runs this plan."),
      el("div", { class: "bar" }, ...able.map((row) => {
        const button = el("button", { type: "button", id: `export-${row.target}` }, row.tool);
        button.addEventListener("click", () => kept(`export/${row.target}.zip`, `${row.target}.zip`, button));
        return button;
      })),
      el("details", {}, el("summary", {}, `${others.length} cannot run it, and why`),
        el("ul", {}, ...others.map((row) => el("li", {}, el("strong", {}, row.tool), `: ${row.reason}`)))));
    $("launchers").hidden = false;
    $("export").setAttribute("aria-expanded", "true");
  } catch (error) {
    complain($("edit-error"), error);
  }
}

function unlisted() {
  $("launchers").hidden = true;
  $("export").setAttribute("aria-expanded", "false");
}

/** No plan is shown; another instance is. */
export function clear(other) {
  instance = other;
  [trail, at, chosen, swapping, opened] = [[], -1, null, false, new Set()];
  $("board").hidden = true;
}

/** A plan to start from. */
export function show(board, label = "planner’s plan") {
  trail = [{ board, label }];
  at = 0;
  [chosen, swapping] = [null, false];
  draw();
}

// --- changes ---------------------------------------------------------------------

/** Ask for a change of the plan shown, or of `from`; the last of many is what counts. */
async function change(edit, label, from = now(), replaces = false) {
  next = { edit, label, from, replaces };
  if (asking) return;
  asking = true;
  try {
    while (next) {
      const one = next;
      next = null;
      const board = await post("api/plans/edited", { plan: one.from.id, edit: one.edit });
      if (one.replaces) at -= 1;
      trail = [...trail.slice(0, at + 1), { board, label: one.label }];
      at = trail.length - 1;
      if (next && next.from === one.from) next.replaces = true;
      complain($("edit-error"), null);
      draw();
    }
  } catch (error) {
    complain($("edit-error"), error, "");
    draw();
  } finally {
    asking = false;
  }
}

function go(to) {
  complain($("edit-error"), null);
  if (to < 0 || to >= trail.length) return;
  at = to;
  if (chosen && !blockAt(chosen)) chosen = null;
  draw();
}

async function reset() {
  const planned = now()?.planned;
  if (!planned) return;
  if (trail[0].board.id === planned.id) { go(0); return; }
  show(await get(`api/plans/${planned.id}`));
}

const blockAt = ({ pipeline, stage }) => now()?.pipelines[pipeline]?.stages[stage];
const named = ({ pipeline, stage }) =>
  now().pipelines.length > 1 ? `stage ${pipeline + 1}.${stage + 1}` : `stage ${stage + 1}`;

function moveBorder(place, layer, from, replaces) {
  return change({ kind: "border", place, layer }, `border of ${named(place)} at layer ${layer}`, from, replaces);
}

function swap(other) {
  const place = chosen;
  swapping = false;
  if (place.pipeline === other.pipeline && place.stage === other.stage) { draw(); return; }
  change({ kind: "swap", place, other }, `${named(place)} ⇄ ${named(other)}`);
}

function remove(place) {
  chosen = null;
  change({ kind: "remove", place }, `without ${named(place)}`);
}

const drop = (node) => { chosen = null; change({ kind: "drop", node }, `without ${node}`); };

// --- keys ------------------------------------------------------------------------

function keys(event) {
  if (at < 0 || event.target.matches("input, select, textarea")) return;
  const z = event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey);
  if (z) go(event.shiftKey ? at + 1 : at - 1);
  else if (event.key === "Escape" && (swapping || chosen)) {
    if (!swapping) chosen = null;
    swapping = false;
    draw();
  } else return;
  event.preventDefault();
}

function blockKeys(event, place) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) focusOn({ ...place, stage: place.stage + step });
  else if (event.key === "Delete") remove(place);
  else if (event.key.toLowerCase() === "s" && !event.ctrlKey && !event.metaKey) {
    if (swapping) swap(place);
    else { chosen = place; swapping = true; draw(); }
  } else return;
  event.preventDefault();
}

const idOf = ({ pipeline, stage }, what = "stage") => `${what}-${pipeline}-${stage}`;
const focusOn = (place) => $(idOf(place))?.focus();

// --- the drawing -----------------------------------------------------------------

function draw() {
  const board = now(), focused = document.activeElement?.id;
  $("board").hidden = false;
  $("invitation").hidden = true;
  verdict(board);
  $("undo").disabled = at <= 0;
  $("redo").disabled = at >= trail.length - 1;
  $("reset").disabled = !board.planned || board.planned.id === board.id;
  unlisted();
  $("get-plan").href = `api/plans/${board.id}/plan.json`;
  $("get-instance").href = `api/instances/${instance.digest}/instance.yaml`;
  legend();
  const broken = new Map();
  for (const { where, rule } of board.violations) {
    const found = /pipelines\[(\d+)\](?:\.stages\[(\d+)\])?/.exec(where);
    if (found) broken.set(`${found[1]}-${found[2] ?? ""}`, rule);
  }
  const scale = scales(board);
  $("pipelines").replaceChildren(...folded(board, (i) => pipeline(board.pipelines[i], i, scale, broken)));
  idle(board.idle);
  history();
  tools();
  if (focused) ($(focused) ?? $("undo")).focus({ preventScroll: true });
}

const busy = (stage) => (stage.compute_us === null ? null : stage.compute_us + stage.hop_us);

function scales(board) {
  const times = board.pipelines.flatMap((one) => one.stages.map(busy));
  return { slowest: Math.max(...times.map((us) => us ?? 0), 1), longest: Math.max(...board.pipelines.map((one) => one.us ?? 0)) };
}

function verdict(board) {
  const { objective_us: us, planned, violations } = board;
  const own = planned !== null && planned.id !== board.id;
  $("verdict-title").textContent = own ? "Your plan" : at === 0 && planned ? "The planner’s plan" : "This plan";
  const said = [];
  if (us === null) said.push(el("strong", {}, "cannot be timed"));
  else said.push(el("strong", { class: "whole" }, time(us)), violations.length ? " per iteration, if it could run" : " per iteration");
  if (own && planned.longer !== null) {
    const worse = planned.longer > 0, same = planned.longer === 0;
    const words = same ? "as long as" : `${share(planned.longer, true)}, ${time(Math.abs(planned.longer_us))} ${worse ? "longer than" : "shorter than"}`;
    said.push(" ", el("span", { class: same ? "same" : worse ? "worse" : "better" },
      `${same ? "=" : worse ? "▲" : "▼"} ${words} the planner’s ${time(planned.objective_us)}`));
  }
  if (board.gap !== null) said.push(el("span", {}, board.gap === 0 ? "; proved: none is shorter" : `; at most ${share(board.gap)} from the best possible`));
  if (board.totals.tokens_per_second) said.push(el("span", { class: "soft" }, ` · ${Math.round(board.totals.tokens_per_second).toLocaleString("en")} tokens/s`));
  if (board.totals.low_s) said.push(el("span", { class: "soft" }, ` · 80% interval: ${time(board.totals.low_s * 1e6)} to ${time(board.totals.high_s * 1e6)}`));
  $("verdict").replaceChildren(...said);
  $("violations").replaceChildren(
    ...violations.map(({ rule, where, by }) => el("li", {}, el("strong", {}, `⚠ ${rule.replaceAll("_", " ")}`), ` ${placed(where)}: ${by}`)),
    ...board.warnings.map((warning) => el("li", { class: "warning" }, warning)));
}

/** `pipelines[0].stages[2].replicas[0]` as the page counts, from 1. */
const placed = (where) => where
  .replace(/pipelines\[(\d+)\](\.stages\[(\d+)\])?(\.replicas\[\d+\])?/,
    (_, p, whole, j) => (whole ? `stage ${Number(p) + 1}.${Number(j) + 1}` : `pipeline ${Number(p) + 1}`));

const cardAt = (name) => instance.cards.findIndex((card) => card.name === name);

function paint(element, name) {
  const number = cardAt(name);
  element.style.backgroundColor = instance.cards[number]?.colour ?? "#bbb";
  element.dataset.pattern = number < 0 ? "none" : number % 6;
  return element;
}

function legend() {
  $("legend").replaceChildren(...instance.cards.map((card) =>
    el("li", {}, paint(el("span", { class: "swatch" }), card.name), `${card.name} × ${card.gpus}`)));
}

function pipeline(one, number, scale, broken) {
  const many = now().pipelines.length > 1;
  const slowest = one.us !== null && one.us === scale.longest;
  const rule = broken.get(`${number}-`);
  const parts = one.stages.flatMap((stage, j) => {
    const made = [block(stage, { pipeline: number, stage: j }, scale, broken)];
    if (j + 1 < one.stages.length) made.push(border(one, number, j));
    return made;
  });
  return el("section", { class: "pipeline", "aria-label": `Pipeline ${number + 1}` },
    el("header", {},
      el("h4", {}, `Pipeline ${number + 1}`),
      el("span", {}, `${plural(one.micro_batches, "micro-batch", "micro-batches")} of ${one.micro_batch_size}`),
      el("span", { class: slowest && many ? "slowest" : null }, one.us === null ? "" : `${time(one.us)}${slowest && many ? ", the longest" : ""}`),
      rule ? el("span", { class: "breaks" }, `⚠ ${rule.replaceAll("_", " ")}`) : null,
      many ? giver(number, one) : null),
    el("div", { class: "stages" }, ...parts));
}

/** Pipelines in order; those that are as the one before them lie in a fold. */
function folded(board, drawn) {
  const kind = ({ stages, ...rest }) => JSON.stringify([rest, stages.map(({ groups, ...stage }) =>
    [stage, groups.map(({ card, gpus, samples, memory_mib: mib }) => [card, gpus.length, samples, mib])])]);
  const kinds = board.pipelines.map(kind), made = [];
  for (let first = 0, end; first < kinds.length; first = end) {
    for (end = first + 1; kinds[end] === kinds[first];) end += 1;
    made.push(drawn(first));
    if (end - first === 1) continue;
    const rest = [...Array(end - first - 1).keys()].map((i) => first + 1 + i);
    if (rest.some((i) => opened.has(i)) || rest.length === 1) made.push(...rest.map(drawn));
    else {
      const names = `Pipelines ${rest[0] + 1} to ${rest.at(-1) + 1} are the same: show them`;
      made.push(el("p", {}, el("button", { type: "button", class: "quiet", id: `show-${rest[0]}`, onclick: () => {
        rest.forEach((i) => opened.add(i));
        draw();
        focusOn({ pipeline: rest[0], stage: 0 });
      } }, names)));
    }
  }
  return made;
}

/** A micro-batch goes to the quickest other pipeline with the same size of them. */
function giver(number, one) {
  const others = now().pipelines
    .map((other, to) => ({ to, us: other.us ?? Infinity, size: other.micro_batch_size }))
    .filter(({ to, size }) => to !== number && size === one.micro_batch_size)
    .sort((a, b) => a.us - b.us);
  if (!others.length) return null;
  const [{ to }] = others;
  return el("button", {
    type: "button", class: "quiet", id: `give-${number}`, disabled: one.micro_batches < 2,
    onclick: () => change({ kind: "batch", pipeline: number, to }, `a micro-batch: pipeline ${number + 1} → ${to + 1}`),
  }, `give one to pipeline ${to + 1}`);
}

function fullest(stage) {
  const known = stage.groups.filter((group) => group.memory_mib !== null && group.room_mib);
  return known.reduce((most, group) => (!most || group.memory_mib / group.room_mib > most.memory_mib / most.room_mib ? group : most), null);
}

function cardsOf(stage) {
  const counts = new Map();
  for (const group of stage.groups) counts.set(group.card ?? "?", (counts.get(group.card ?? "?") ?? 0) + group.gpus.length);
  return [...counts].map(([card, n]) => `${n} × ${card}`).join(" + ");
}

function block(stage, place, scale, broken) {
  const us = busy(stage), full = fullest(stage);
  const part = full ? full.memory_mib / full.room_mib : null;
  const layers = stage.layers[1] - stage.layers[0];
  const rule = broken.get(`${place.pipeline}-${place.stage}`);
  const here = chosen && chosen.pipeline === place.pipeline && chosen.stage === place.stage;
  const label = `${named(place)}: layers ${spans(stage.runs)} on ${cardsOf(stage)}, ${time(us)}`
    + (full ? `, ${memory(full.memory_mib)} of ${memory(full.room_mib)}` : "") + (rule ? `, breaks ${rule}` : "");
  const made = el("button", {
    type: "button", id: idOf(place), "aria-label": label, "aria-pressed": String(Boolean(here)), title: label,
    class: `stage${here ? " chosen" : ""}${swapping && !here ? " target" : ""}${rule ? " broken" : ""}${us === scale.slowest ? " slow" : ""}`,
    onclick: () => {
      if (swapping && chosen) { swap(place); return; }
      chosen = here ? null : place;
      draw();
      if (chosen) $(idOf(chosen)).scrollIntoView({ block: "nearest", inline: "nearest" }); // above its tools
    },
    onkeydown: (event) => blockKeys(event, place),
  },
  el("span", { class: "what" }, cardsOf(stage)),
  el("span", { class: "layers" }, plural(layers, "layer"), el("span", { class: "range" }, `: ${spans(stage.runs)}`)),
  el("span", { class: "took" }, rule ? "⚠ " : "", brief(us)),
  el("span", { class: "held" }, ...(part === null ? [] : [el("span", { class: "word" }, "memory "), `${Math.round(100 * part)}%`])),
  bar("time", us === null ? null : us / scale.slowest, `${share(us === null ? null : us / scale.slowest)} of the slowest stage`, stage),
  bar("memory", part, full ? `${memory(full.memory_mib)} of ${memory(full.room_mib)}` : ""));
  made.style.flexGrow = us === null ? layers : Math.max(1, Math.round((1000 * us) / scale.slowest));
  return paint(made, stage.groups[0].card);
}

function bar(kind, filled, title, stage) {
  const inner = el("span", { class: filled > 1 ? "fill over" : "fill" });
  inner.style.width = `${100 * Math.min(1, filled ?? 0)}%`;
  const made = el("span", { class: `bar-of ${kind}`, title }, inner);
  if (stage?.hop_us) {
    const hop = el("span", { class: "hop" });
    hop.style.width = `${(100 * stage.hop_us) / busy(stage)}%`;
    inner.append(hop);
  }
  return made;
}

// A border is a slider: the layer that the stage behind it begins with.
function border(one, number, j) {
  const [left, right] = [one.stages[j], one.stages[j + 1]];
  const layer = right.layers[0], least = left.layers[0] + 1, most = right.layers[1] - 1;
  const place = { pipeline: number, stage: j };
  const text = `${left.layers[1] - left.layers[0]} layers before, ${right.layers[1] - right.layers[0]} behind`;
  const to = (target, from, replaces) => {
    const kept = Math.min(most, Math.max(least, target));
    if (kept !== now().pipelines[number]?.stages[j + 1]?.layers[0]) moveBorder(place, kept, from, replaces);
  };
  const handle = el("div", {
    class: "border", role: "slider", tabindex: 0, id: idOf(place, "border"), title: "Drag: layers go over the border",
    "aria-label": `Border behind ${named(place)}`, "aria-valuemin": least, "aria-valuemax": Math.max(least, most),
    "aria-valuenow": layer, "aria-valuetext": text,
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -4, PageDown: 4 }[event.key];
      if (!step) return;
      event.preventDefault();
      to(layer + step);
    },
    onpointerdown: (event) => drag(event, { one, j, layer, to }),
  }, el("span", { class: "grip" }), el("span", { class: "note" }, left.runs.length > 1 ? "layers ↕" : `layer ${layer} ↕`));
  return handle;
}

function drag(event, { one, j, layer, to }) {
  if (event.button !== 0) return;
  event.preventDefault();
  const handle = event.currentTarget, stages = handle.parentElement;
  handle.focus();
  const upright = getComputedStyle(stages).flexDirection === "column";
  const sides = [handle.previousElementSibling, handle.nextElementSibling].map((side) => side.getBoundingClientRect());
  const room = upright ? 260 : sides[0].width + sides[1].width;
  const layers = one.stages[j + 1].layers[1] - one.stages[j].layers[0];
  const from = now(), start = upright ? event.clientY : event.clientX;
  let last = layer, moved = false;
  document.body.classList.add(upright ? "dragging-up" : "dragging");
  const move = (step) => {
    const target = layer + Math.round((((upright ? step.clientY : step.clientX) - start) / room) * layers);
    if (target === last) return;
    last = target;
    to(target, from, moved);
    moved = true;
  };
  const end = () => {
    document.body.classList.remove("dragging", "dragging-up");
    window.removeEventListener("pointermove", move);
    window.removeEventListener("pointerup", end);
    window.removeEventListener("pointercancel", end);
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", end);
  window.addEventListener("pointercancel", end);
}

function idle(rows) {
  $("idle").replaceChildren(...(rows.length ? [el("p", { class: "soft" },
    "Idle: ", rows.map(({ node, card, gpus }) => `${gpus} × ${card} on ${node}`).join(", "))] : []));
}

function history() {
  $("history").hidden = trail.length < 2;
  $("history").replaceChildren(...trail.map(({ board, label }, i) => {
    const before = trail[i - 1]?.board.objective_us ?? null, us = board.objective_us;
    const delta = before === null || us === null ? null : us - before;
    const cost = us === null ? "cannot be timed" : i === 0 || delta === null ? time(us) : delta === 0 ? "= no change" : `${delta > 0 ? "▲ +" : "▼ "}${time(delta)}`;
    const kind = delta === null || delta === 0 ? "same" : delta > 0 ? "worse" : "better";
    return el("li", {}, el("button", {
      type: "button", "aria-current": i === at ? "step" : null, onclick: () => go(i), id: `step-${i}`,
    }, el("span", {}, label), " ", el("span", { class: kind }, cost), board.violations.length ? " ⚠" : ""));
  }));
  const mark = $("history").querySelector("[aria-current]"); // the page itself stays where it is
  if (mark) $("history").scrollLeft = mark.parentElement.offsetLeft + mark.offsetWidth + 12 - $("history").clientWidth;
}

// --- what can be done with a stage --------------------------------------------------

function tools() {
  const stage = chosen && blockAt(chosen);
  $("stage").hidden = !stage;
  if (!stage) return;
  const place = chosen, { pipelines } = now(), stages = pipelines[place.pipeline].stages;
  const full = fullest(stage), j = place.stage, [first, end] = stage.layers;
  const button = (text, act, disabled = false, id = null) => el("button", { type: "button", onclick: act, disabled, id }, text);
  const groups = stage.groups.map((group) => `${group.node}: ${group.gpus.length > 4 ? `${group.gpus.length} GPUs` : `GPU ${group.gpus.join(", ")}`}`).join("; ");
  const facts = [`layers ${spans(stage.runs)}`, `${cardsOf(stage)} (${groups})`, `computes ${time(stage.compute_us)}`,
    stage.hop_us ? `sends ${time(stage.hop_us)}` : null, full ? `${memory(full.memory_mib)} of ${memory(full.room_mib)}` : null].filter(Boolean);
  const rules = instance.workload.recomputes;
  const rule = el("select", { "aria-label": "Recompute", id: "rule", onchange: (event) =>
    change({ kind: "recompute", place, rule: event.target.value }, `${named(place)} recomputes ${event.target.value}`) },
  ...rules.map((name) => el("option", {}, name)));
  rule.value = stage.recompute ?? rules[0];
  const nodes = [...new Set(stage.groups.map((group) => group.node))];
  fill($("stage"),
    el("p", {}, el("strong", {}, named(place).replace("s", "S")), ` — ${facts.join(" · ")}`),
    el("p", { class: "hint", hidden: !swapping }, "Now choose the stage to exchange GPUs with; Esc lets go."),
    el("div", { class: "bar", id: "stage-acts" },
      button("◂ first layer to the stage before", () => moveBorder({ ...place, stage: j - 1 }, first + 1), j === 0 || end - first < 2, "to-before"),
      button("last layer to the stage behind ▸", () => moveBorder(place, end - 1), j + 1 >= stages.length || end - first < 2, "to-behind"),
      button(swapping ? "Let go" : "⇄ Swap GPUs", () => { swapping = !swapping; draw(); }, false, "swap"),
      rules.length > 1 ? el("label", { class: "inline" }, "recompute ", rule) : null,
      button("Remove stage", () => remove(place), stages.length < 2, "remove"),
      ...nodes.map((node) => button(`Drop ${node}`, () => drop(node), false, `drop-${node}`)),
      ...nodes.map((node) => button(`Plan again without ${node}`, () => onWithout(node), false, `without-${node}`))));
}
