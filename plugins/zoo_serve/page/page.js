// Begins the page: the models and settings of the server, the two views, the key, Esc.

import { request, useKey } from "./api.js";
import { Chat } from "./chat.js";
import { Compare } from "./compare.js";
import { generates } from "./panel.js";
import { say } from "./words.js";

const VIEWS = { chat: Chat, compare: Compare };
const views = {};
const server = { models: [], openapi: null, refresh };
const fault = document.getElementById("fault");
const keyForm = document.getElementById("key");

async function begin() {
  fault.hidden = true;
  try {
    server.openapi = await (await request("openapi.json")).json();
    await refresh();
    if (!server.models.length) throw new Error(say("no_models"));
    for (const [name, View] of Object.entries(VIEWS)) views[name] = new View(document.getElementById(name), server);
    show();
  } catch (error) {
    fault.textContent = error.message;
    fault.hidden = false;
  }
}

// Reads the models anew: what is known of one that was loaded, and which these are.
async function refresh() {
  const { data } = await (await request("v1/models")).json();
  server.models = data.filter(generates);
  for (const view of Object.values(views)) for (const panel of view.panels) panel.fill();
}

// The view that the address names, "#compare" or else the chat.
function show() {
  const chosen = location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "chat";
  for (const name of Object.keys(views)) document.getElementById(name).hidden = name !== chosen;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

window.addEventListener("hashchange", show);
window.addEventListener("zoo-key", () => {
  keyForm.hidden = false;
  keyForm.querySelector("input").focus();
});
keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  const input = keyForm.querySelector("input");
  useKey(input.value.trim());
  input.value = "";
  keyForm.hidden = true;
  if (!views.chat) begin();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") for (const view of Object.values(views)) view.stop();
});
begin();
