// Where an instance comes from: the form, an example, a file, and changes of these.

import { $, el, fill, billions, count, plural, time } from "./tools.js";
import { complain, get, post, Refused } from "./asking.js";

const WAIT_MS = 350; // after the last key, before the server is asked
let catalogue, tell, config = null, groups = [], current = null;
let turn = 0, timer = null, pending = null; // requests: the last one counts

/** Fill the form; `told` hears every instance that there is from then on. */
export async function begin(told) {
  tell = told;
  catalogue = await get("api/catalogue");
  const models = catalogue.models.map((model) =>
    el("option", { value: model.name }, `${model.name} (${billions(model.parameters)})`));
  $("model").append(...models);
  fillExamples();
  const targets = document.querySelector("[data-option=runs_on]");
  targets.append(el("option", { value: "" }, "whatever runs best"),
    ...catalogue.targets.map((name) => el("option", {}, name)));
  fillForm(catalogue.form);
  listen();
}

function fillExamples() {
  const families = new Map();
  for (const name of catalogue.instances) {
    const [family] = name.split("/");
    if (!families.has(family)) families.set(family, el("optgroup", { label: family }));
    const about = catalogue.about[name];
    families.get(family).append(
      el("option", { value: name, title: about }, `${name.split("/")[1]}: ${about}`));
  }
  $("example").append(el("option", { value: "" }, "choose one …"), ...families.values());
}

function fillForm(form) {
  const build = $("build").elements;
  config = form.model.config === null ? null : form.model;
  showModel();
  if (config === null) build["model.name"].value = form.model.name;
  const told = form.options.filter((word) => {
    const [name, value] = word.split("=");
    const select = document.querySelector(`[data-option="${CSS.escape(name)}"]`);
    if (select) select.value = value;
    return !select;
  });
  build.options.value = told.join(" ");
  for (const name of ["network_gbytes_per_s", "global_batch", "sequence_length"])
    build[name].value = form[name];
  build.micro_batch_sizes.value = form.micro_batch_sizes.join(", ");
  groups = form.groups.map((group) => ({ ...group }));
  showGroups();
}

/** A configuration is the model while there is one, and is named so. */
function showModel() {
  $("model").querySelector("[data-config]")?.remove();
  if (config === null) return;
  $("model").prepend(el("option", { value: "", "data-config": true }, `${config.name}, of its config.json`));
  $("model").value = "";
}

/** Go on with an instance that the server has: in the form that it is of, if any. */
export function resume(instance) {
  if (instance.form) fillForm(instance.form);
  else {
    edit(instance);
    choose("open");
  }
}

// --- the form -----------------------------------------------------------------

function showGroups() {
  $("groups").replaceChildren(...groups.map(groupRow));
}

function groupRow(group, at) {
  const field = (name, label, unit, attributes = {}) => el("label", {}, label,
    el("span", { class: unit ? "unit" : null },
      el("input", {
        name: `groups[${at}].${name}`, value: group[name] ?? "", ...attributes,
        oninput: (event) => { group[name] = event.target.value; },
      }), unit ? el("span", {}, unit) : null));
  const card = catalogue.cards.find((one) => one.name === group.card);
  const cards = el("select", {
    name: `groups[${at}].card`, onchange: (event) => chooseCard(group, event.target.value),
  }, ...makers());
  cards.value = group.card;
  const more = el("details", { open: group.open, ontoggle: (event) => { group.open = event.target.open; } },
    el("summary", {}, "Name and links"),
    el("div", { class: "row" },
      field("name", "Hosts are called", null, { spellcheck: "false" }),
      field("link_gbytes_per_s", "Within a node", "GB/s", { placeholder: card?.link_gbytes_per_s }),
      field("network_gbytes_per_s", "Between these", "GB/s", { placeholder: "as the network" })));
  return el("div", { class: "group", role: "group", "aria-label": `Nodes ${at + 1}` },
    el("div", { class: "row" },
      field("nodes", "Nodes", null, { inputmode: "numeric", size: 3, class: "short" }),
      field("gpus", "× GPUs", null, { inputmode: "numeric", size: 3, class: "short" }),
      el("label", { class: "grow" }, "Card", cards),
      el("button", {
        type: "button", class: "quiet remove", "aria-label": `Remove nodes ${at + 1}`,
        disabled: groups.length === 1,
        onclick: () => { groups.splice(at, 1); showGroups(); soon(build); },
      }, "✕")),
    el("p", { class: "soft" }, cardLine(card)), more);
}

const makers = () => {
  const byMaker = new Map();
  for (const { name, maker } of catalogue.cards) {
    if (!byMaker.has(maker)) byMaker.set(maker, el("optgroup", { label: maker }));
    byMaker.get(maker).append(el("option", {}, name));
  }
  return byMaker.values();
};

const cardLine = (card) => card
  ? `${card.memory_gib} GiB, ${card.peak_tflops} TFLOP/s, ${card.link_gbytes_per_s} GB/s within a ${card.machine}`
  : "";

function chooseCard(group, name) {
  const card = catalogue.cards.find((one) => one.name === name);
  const stem = name.split("-")[0].toLowerCase();
  const taken = new Set(groups.filter((one) => one !== group).map((one) => one.name));
  let free = stem;
  for (let i = 2; taken.has(free); i += 1) free = `${stem}-${i}`;
  Object.assign(group, { card: name, name: free, gpus: card.gpus });
  showGroups();
  soon(build);
}

const number = (text) => {
  const plain = String(text).trim();
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : plain;
};
const optional = (text) => (String(text ?? "").trim() === "" ? null : number(text));

function formOf() {
  const build = $("build").elements;
  const options = build.options.value.split(/\s+/).filter(Boolean);
  for (const select of document.querySelectorAll("[data-option]"))
    if (select.value) options.push(`${select.dataset.option}=${select.value}`);
  return {
    model: config ?? { name: build["model.name"].value },
    groups: groups.map((group) => ({
      name: group.name, card: group.card,
      gpus: number(group.gpus), nodes: number(group.nodes),
      link_gbytes_per_s: optional(group.link_gbytes_per_s),
      network_gbytes_per_s: optional(group.network_gbytes_per_s),
    })),
    network_gbytes_per_s: number(build.network_gbytes_per_s.value),
    global_batch: number(build.global_batch.value),
    sequence_length: number(build.sequence_length.value),
    micro_batch_sizes: build.micro_batch_sizes.value.split(",").map(number),
    options,
  };
}

export const build = () => ask("api/instances/form", formOf());

// --- asking --------------------------------------------------------------------

function soon(call) {
  clearTimeout(timer);
  timer = setTimeout(() => { timer = null; call(); }, WAIT_MS);
  pending = call;
}
/** Whatever was typed last is asked for at once; true where the instance is good. */
export async function settled() {
  if (timer !== null) {
    clearTimeout(timer);
    timer = null;
    await pending();
  }
  return $("source-error").hidden && current !== null;
}

async function ask(path, body) {
  const mine = (turn += 1);
  $("source").setAttribute("aria-busy", "true");
  try {
    const instance = await post(path, body);
    if (mine !== turn) return;
    mark(null);
    show(instance);
  } catch (error) {
    if (mine === turn) mark(error);
  } finally {
    if (mine === turn) $("source").removeAttribute("aria-busy");
  }
}

function mark(error) {
  for (const field of document.querySelectorAll("#source [aria-invalid]"))
    field.removeAttribute("aria-invalid");
  complain($("source-error"), error);
  if (!(error instanceof Refused) || !error.parts.field) return;
  const path = error.parts.field.replace(/^changes\./, "").replace(/^(micro_batch_sizes|options)\[.*/, "$1").replace(/^option$/, "options");
  const field = document.querySelector(`#source [name="${CSS.escape(path)}"]`);
  if (!field) return;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", "source-error");
  const label = field.dataset.name ?? field.closest("label")?.firstChild.textContent.trim() ?? field.getAttribute("aria-label");
  complain($("source-error"), error, label);
}

/** Show an instance that is the page's from now on. */
export function show(instance) {
  current = instance;
  const { model, workload, network } = instance;
  const links = network.pairs ? `, ${plural(network.pairs, "link")} of their own` : "";
  fill($("instance"),
    el("h3", {}, instance.name),
    el("p", {}, `${plural(instance.gpus, "GPU")}; ${model.layers} layers, ${billions(model.parameters)} parameters; `
      + `${count(workload.global_batch)} × ${count(workload.sequence_length)} tokens per iteration. `,
      el("strong", {}, `No plan takes less than ${time(instance.bound_us)}.`)),
    el("p", { class: "soft" }, `${instance.source ?? ""}${links}`),
    assumptions(instance.assumed));
  $("instance").classList.toggle("is-open", !$("open").hidden);
  tell(instance);
}

function assumptions(rows) {
  if (!rows.length) return null;
  return el("details", { class: "assumed" },
    el("summary", {}, `${rows.length} things are assumed`),
    el("dl", {}, ...rows.flatMap((row) => [
      el("dt", {}, row.what), el("dd", {}, el("strong", {}, row.value),
        el("span", { class: "soft" }, ` ${row.source}; change it with `, el("code", {}, row.change)))])));
}

// --- examples, files, and changes of them ---------------------------------------

let base = null, nodes = [];

/** The editor of an instance that has no form. */
export function edit(instance) {
  base = instance.digest;
  nodes = instance.nodes.map((node) => ({ ...node }));
  $("example").value = catalogue.instances.includes(instance.name) ? instance.name : "";
  const { workload, network } = instance;
  const field = (name, label, value, unit) => el("label", {}, label, el("span", { class: "unit" },
    el("input", { name, value: value ?? "", inputmode: "text", disabled: value === null }),
    unit ? el("span", {}, unit) : null));
  fill($("editor"),
    el("h3", {}, "Nodes"),
    el("div", { class: "nodes scroll", id: "nodes" }),
    el("h3", {}, "Cards"),
    ...instance.cards.map((card) => el("div", { class: "row card" },
      el("span", { class: "name" }, card.name),
      field(`cards.${card.name}.memory_gib`, "Memory, GiB", card.memory_gib),
      card.timed_by_peak ? field(`cards.${card.name}.peak_tflops`, "Peak, TFLOP/s", card.peak_tflops) : null)),
    el("div", { class: "row" },
      field("network_gbytes_per_s", "Network between nodes", network.gbytes_per_s, "GB/s"),
      field("latency_us", "Latency", network.latency_us, "µs"),
      field("global_batch", "Global batch", workload.global_batch, "seq."),
      field("sequence_length", "Sequence length", workload.sequence_length, "tokens")));
  showNodes();
}

function showNodes() {
  $("nodes").replaceChildren(...nodes.map((node, at) => el("div", { class: "row node" },
    el("span", { class: "name" }, node.name),
    el("span", { class: "soft grow" }, node.gpu),
    el("input", {
      name: `nodes[${at}].count`, value: node.count, inputmode: "numeric", size: 3, class: "short",
      "aria-label": `GPUs of ${node.name}`,
      oninput: (event) => { node.count = event.target.value; },
    }),
    el("button", { type: "button", class: "quiet", "aria-label": `Another node like ${node.name}`, onclick: () => {
      nodes.splice(at + 1, 0, { ...node, name: freeName(node.name) });
      showNodes();
      soon(change);
    } }, "+"),
    el("button", { type: "button", class: "quiet", "aria-label": `Remove ${node.name}`, disabled: nodes.length === 1, onclick: () => {
      nodes.splice(at, 1);
      showNodes();
      soon(change);
    } }, "✕"))));
}

function freeName(name) {
  const taken = new Set(nodes.map((node) => node.name));
  const stem = name.replace(/\d+$/, "");
  for (let i = 1; ; i += 1) if (!taken.has(`${stem}${i}`)) return `${stem}${i}`;
}

function changesOf() {
  const fields = $("editor").elements, cards = {};
  const changed = { nodes: nodes.map(({ name, gpu, count: n }) => ({ name, gpu, count: number(n) })), cards };
  for (const field of fields) {
    if (!field.name || field.disabled || field.name.startsWith("nodes[")) continue;
    if (!field.name.startsWith("cards.")) changed[field.name] = optional(field.value);
    else {
      const at = field.name.lastIndexOf(".");
      const card = field.name.slice("cards.".length, at);
      (cards[card] ??= {})[field.name.slice(at + 1)] = optional(field.value);
    }
  }
  return changed;
}

const change = () => ask("api/instances/changed", { instance: base, changes: changesOf() });

/** Go on without a node, in the editor. */
export async function without(name) {
  if (current === null) return;
  edit(current);
  nodes = nodes.filter((node) => node.name !== name);
  showNodes();
  choose("open");
  await change();
}

async function opened(path, body) {
  await ask(path, body);
  if (current && $("source-error").hidden) edit(current);
}

/** Show the tab of that name. */
export function choose(name) {
  for (const one of ["build", "open"]) {
    const chosen = one === name;
    $(one).hidden = !chosen;
    $(`tab-${one}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${one}`).tabIndex = chosen ? 0 : -1;
  }
}

function listen() {
  for (const name of ["build", "open"]) {
    $(`tab-${name}`).addEventListener("click", () => {
      choose(name);
      if (name === "build") build();
    });
    $(`tab-${name}`).addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = name === "build" ? "open" : "build";
      $(`tab-${other}`).focus();
      $(`tab-${other}`).click();
    });
  }
  $("add-group").addEventListener("click", () => {
    const group = { nodes: 1 };
    groups.push(group);
    chooseCard(group, "H100-80GB-SXM5");
  });
  const again = (event) => { if (!event.target.matches("[type=file]")) soon(build); };
  $("build").addEventListener("input", again);
  $("build").addEventListener("submit", (event) => event.preventDefault());
  $("editor").addEventListener("input", () => soon(change));
  $("editor").addEventListener("submit", (event) => event.preventDefault());
  $("model").addEventListener("change", () => {
    config = null;
    $("config").value = "";
    showModel();
  });
  $("config").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    const name = file?.name.replace(/\.json$/, "").replace(/^config$/, "my-model");
    config = file ? { name, config: await file.text() } : null;
    showModel();
    build();
  });
  $("example").addEventListener("change", (event) => {
    $("upload").value = "";
    if (event.target.value) opened("api/instances/named", { name: event.target.value });
  });
  $("upload").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) opened("api/instances/file", { name: file.name, text: await file.text() });
  });
}
