// A plan in the making: incumbent and bound close in.

import { $, share, svg, time } from "./tools.js";
import { complain, get, post, Refused } from "./asking.js";

let job = null, planning = false, points = [], limit = 20, began = 0;

export const running = () => planning;

/** Ask for a plan, and watch it; `done` gets the last event. */
export async function plan(instance, seconds, done) {
  const answer = await post("api/jobs", { instance, time_limit: seconds });
  limit = seconds;
  watch(answer.job, done);
}

/** Follow a job from its first event on. */
export async function watch(name, done) {
  [job, points, planning] = [name, [], true];
  began = performance.now();
  $("live").hidden = false;
  figures(null, null, null);
  let last = null;
  try {
    for (let seen = 0, told = {}; !told.ended; seen += told.events.length) {
      await new Promise((after) => setTimeout(after, 200));
      told = await get(`api/jobs/${name}?after=${seen}`);
      for (const event of told.events) last = heard(event);
      draw();
    }
    if (last.kind !== "done") throw new Refused(last.error);
  } catch (error) {
    $("status").textContent = "";
    complain($("plan-error"), error);
    last = null;
  }
  planning = false;
  draw();
  done(last);
}

function heard(event) {
  if (event.kind === "began") $("status").textContent = "Planning …";
  if (event.kind === "error") return event;
  began = performance.now() - 1000 * event.seconds; // the worker's clock
  const incumbent = event.incumbent ?? event.objective ?? null, bound = event.bound ?? null;
  if (event.kind === "began" || (incumbent === null && bound === null)) return event;
  points.push({ seconds: event.seconds, incumbent, bound });
  figures(incumbent, bound, event.gap ?? null);
  return event;
}

export const stop = () => post(`api/jobs/${job}/stop`);

/** Forget the drawing of another instance's plan. */
export function clear() {
  points = [];
  $("live").hidden = true;
}

function figures(incumbent, bound, gap) {
  $("figure-plan").textContent = time(incumbent);
  $("figure-bound").textContent = time(bound);
  $("figure-gap").textContent = gap === 0 ? "0, proved" : share(gap);
}

// --- the drawing -----------------------------------------------------------------

const HEIGHT = 190, LEFT = 52, RIGHT = 92, TOP = 12, BOTTOM = 26;

function nice(least, most, about) {
  const raw = (most - least) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((one) => one >= raw);
  const marks = [];
  for (let mark = Math.ceil(least / step) * step; mark <= most + step / 1e6; mark += step) marks.push(mark);
  return marks;
}

/** Steps of one of the two, to the end of the time that is over. */
function steps(field, now) {
  const known = points.filter((point) => point[field] !== null);
  return known.map((point, i) => [point.seconds, known[i + 1]?.seconds ?? now, point[field]]);
}

export function draw() {
  const box = $("chart");
  const width = Math.max(260, box.clientWidth);
  const last = points.at(-1)?.seconds ?? 0;
  const now = !planning ? last : Math.max(last, (performance.now() - began) / 1000);
  const plans = steps("incumbent", now), bounds = steps("bound", now);
  const values = [...plans, ...bounds].map(([, , us]) => us);
  if (!values.length) { box.replaceChildren(); return; }
  const bottom = Math.min(...values), best = plans.at(-1)?.[2] ?? bottom * 1.3;
  // What lies far above is cut off: the two that close in are what one looks at.
  const top = Math.min(Math.max(...values), Math.max(best * 1.12, best + (best - bottom) * 2.5));
  const room = Math.max((top - bottom) * 0.12, top * 0.01);
  const low = Math.max(0, bottom - room), high = top + room, end = Math.max(!planning ? last : limit, now, 0.1);
  const x = (seconds) => LEFT + (seconds / end) * (width - LEFT - RIGHT);
  const y = (us) => TOP + (1 - (Math.min(us, high) - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const drawing = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  drawing.append(svg("title", {}, title(plans, bounds)));
  axes(drawing, { width, low, high, end, x, y });
  const line = (rows) => rows.map(([from, to, us], i) =>
    `${i ? "L" : "M"}${x(from).toFixed(1)} ${y(us).toFixed(1)}H${x(to).toFixed(1)}`).join("");
  if (plans.length && bounds.length) {
    const from = Math.max(plans[0][0], bounds[0][0]);
    const floor = bounds.filter(([, to]) => to >= from).reverse()
      .map(([start, to, us]) => `L${x(to)} ${y(us)}H${x(Math.max(start, from))}`).join("");
    const roof = line(plans.filter(([, to]) => to >= from).map(([start, to, us]) => [Math.max(start, from), to, us]));
    drawing.append(svg("path", { d: `${roof}${floor}Z`, class: "gap" }));
  }
  drawing.append(svg("path", { d: line(bounds), class: "bound" }), svg("path", { d: line(plans), class: "plan" }));
  ends(drawing, { plans, bounds, x, y });
  box.replaceChildren(drawing);
}

function title(plans, bounds) {
  const of = (rows) => time(rows.at(-1)?.[2]);
  return `Best plan ${of(plans)}, proved bound ${of(bounds)}, over the seconds of planning`;
}

function axes(drawing, { width, low, high, end, x, y }) {
  const seconds = high >= 1e6;
  for (const mark of nice(low, high, 4)) {
    drawing.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark), class: "grid" }));
    const text = seconds ? `${Number((mark / 1e6).toPrecision(4))} s` : `${Number((mark / 1e3).toPrecision(4))} ms`;
    drawing.append(svg("text", { x: LEFT - 6, y: y(mark) + 4, "text-anchor": "end" }, text));
  }
  for (const mark of nice(0, end, width > 500 ? 6 : 3))
    drawing.append(svg("text", { x: x(mark), y: HEIGHT - 8, "text-anchor": "middle" }, `${Number(mark.toPrecision(3))} s`));
}

/** What each line is, at its end; the two are kept apart. */
function ends(drawing, { plans, bounds, x, y }) {
  const rows = [["plan", plans.at(-1)], ["bound", bounds.at(-1)]].filter(([, row]) => row);
  const places = rows.map(([, row]) => y(row[2]));
  if (places.length === 2 && places[1] - places[0] < 30) {
    const middle = Math.min(Math.max((places[0] + places[1]) / 2, TOP + 18), HEIGHT - BOTTOM - 14);
    [places[0], places[1]] = [middle - 15, middle + 15];
  }
  rows.forEach(([kind, row], i) => {
    const text = svg("text", { x: x(row[1]) + 6, y: places[i], class: `end ${kind}` });
    text.append(svg("tspan", { x: x(row[1]) + 6 }, kind === "plan" ? "plan" : "proved"),
      svg("tspan", { x: x(row[1]) + 6, dy: 13 }, time(row[2])));
    drawing.append(text);
  });
}

new ResizeObserver(() => { if (points.length) draw(); }).observe($("chart"));
