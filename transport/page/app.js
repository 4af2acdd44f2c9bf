/** The page: what is pressed goes to the conversation, what it tells is shown. */

import { audible, now } from "./audio.js";
import { Camera } from "./camera.js";
import { keep, kept } from "./kept.js";
import { Inspector } from "./inspector.js";
import { misfit, PROFILES, sees } from "./profiles.js";
import { Talk } from "./talk.js";
import { Timeline } from "./timeline.js";
import { Transcript } from "./transcript.js";

const $ = (id) => document.getElementById(id);
const NARROW = matchMedia("(max-width: 52rem)");

const inspector = new Inspector({ list: $("events"), detail: $("detail"), filter: $("filter"), count: $("count") });
const timeline = new Timeline($("timeline"), $("readout"), {
  onChoose: ({ number }) => {
    if (!number) return;
    unfold(true);
    inspector.find(number);
  },
  onFollow: (following) => ($("follow").hidden = following),
});
const camera = new Camera($("preview"));

let talk = null;
let transcript = null;
let chosen = sessionStorage.getItem("profile") ?? "conversation";
let noticeTimer = 0;

// -- what is shown -----------------------------------------------------------------------------------------------

const STATUS = {
  rest: "At rest",
  connecting: "Connecting …",
  open: "Connected",
  lost: "Line lost, trying again …",
  ended: "Ended",
  failed: "Ended",
};

function show(state, why = "") {
  document.body.dataset.state = state;
  const model = state === "open" && talk?.model ? ` to ${talk.model}` : "";
  $("status-text").textContent = STATUS[state] + model;
  if (why) notice(why, { stays: true });
}

function notice(text, { stays = false } = {}) {
  clearTimeout(noticeTimer);
  $("notice").hidden = !text;
  $("notice").textContent = text;
  if (text && !stays) noticeTimer = setTimeout(() => notice(""), 6000);
}

const view = {
  status(status, why) {
    show(status, why);
    if (status === "failed" || status === "ended") finish();
    if (status === "failed" && !talk.line.id) explain();
  },
  event: (event) => inspector.note(event, "in", now()),
  said: (event) => inspector.note(event, "out", now()),
  notice: (text, code) => notice(code === "input_audio_buffer_empty" ? "Nothing was said." : text),
  user: (item, words) => transcript.user(item, words),
  answer: (answer) => transcript.answer(answer),
  level(peak, sent) {
    $("mute").style.setProperty("--level", sent ? Math.sqrt(peak).toFixed(2) : "0");
  },
  created(session) {
    show("open");
    const words = misfit(chosen, talk.capabilities);
    if (words) notice(words, { stays: true });
    $("camera").hidden = !(talk.profile.camera && sees(talk.capabilities));
  },
};

// -- a conversation ----------------------------------------------------------------------------------------------

async function start(event) {
  event.preventDefault();
  remember();
  await listen(begin(null));
}

/** Begin a conversation, or go on with one that was kept. */
function begin(state) {
  notice("");
  transcript = new Transcript($("transcript"), $("live"), PROFILES[chosen]);
  if (state) transcript.restore(state.rows);
  const url = new URL("v1/realtime?duplex=1&autostart=0", document.baseURI);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  const [key, model] = [$("key").value.trim(), $("model").value.trim()];
  const careful = $("careful").checked;
  talk = new Talk({ profile: chosen, careful, model, key, url: url.href, view, kept: state });
  timeline.show(talk.story);
  arrange();
  show("connecting");
  return talk;
}

async function listen(began) {
  try {
    await began.open();
  } catch (error) {
    if (talk === began && !began.line.over) notice(unheard(error), { stays: true });
  }
}

/** Go on after a reload. A page that nobody has touched yet may not make a sound. */
async function comeBack(state) {
  $("careful").checked = state.careful;
  const began = begin(state);
  if (!(await audible())) {
    notice("Click anywhere or press a key to hear, and to be heard again.", { stays: true });
    await new Promise((go) => ["pointerdown", "keydown"].forEach((one) => addEventListener(one, go, { once: true })));
    notice("");
  }
  if (!began.line.over) await listen(began);
}

/** The page goes: the conversation waits in the tab, and at the server for its grace. */
function leave() {
  const left = talk?.leave();
  if (left) keep({ ...left, careful: talk.careful, rows: transcript.kept() });
}

function arrange() {
  const { turn } = talk.profile;
  $("send").hidden = turn !== "send";
  $("hold").hidden = turn !== "hold";
  $("interrupt").hidden = turn === "hold"; // holding the button does that
  $("hint").textContent = talk.profile.hint;
  $("camera").hidden = true;
  press($("mute"), false);
  (turn === "hold" ? $("hold") : turn === "send" ? $("send") : $("mute")).focus();
}

function finish() {
  timeline.stop();
  camera.close();
  press($("camera"), false);
  talk.close();
  view.level(0, false);
}

function unheard(error) {
  if (error.name === "NotAllowedError") return "The microphone was refused. You can still write.";
  if (error.name === "NotFoundError") return "There is no microphone here. You can still write.";
  if (error.name === "SecurityError")
    return "Browsers give the microphone to https and localhost only. You can still write.";
  return `The microphone cannot be used (${error.message}). You can still write.`;
}

/** A socket does not say why it was refused; another request does. */
async function explain() {
  try {
    if ((await known()).status !== 401) return;
    rest();
    $("settings").open = true;
    $("key").focus();
    notice($("key").value ? "The server does not know this key." : "The server wants an API key.", { stays: true });
  } catch {
    notice("The server cannot be reached.", { stays: true });
  }
}

function rest() {
  show("rest");
  timeline.show(null);
  notice("");
}

function unfold(open) {
  $("wire").hidden = !open;
  $("unfold").setAttribute("aria-expanded", String(open));
}

function unfolded() {
  if (!$("settings").open) return;
  $("settings").scrollIntoView({ block: "nearest" });
  models();
}

/** Offer the names that are served, as far as this key shows them. */
async function models() {
  const served = await known()
    .then((answer) => answer.json())
    .catch(() => ({}));
  const options = (served.data ?? []).map(({ id }) =>
    Object.assign(document.createElement("option"), { value: id }),
  );
  $("models").replaceChildren(...options);
}

function known() {
  const key = $("key").value.trim();
  return fetch("v1/models", { headers: key ? { Authorization: `Bearer ${key}` } : {} });
}

function press(button, pressed) {
  button.setAttribute("aria-pressed", String(pressed));
}

// -- what is pressed ---------------------------------------------------------------------------------------------

function mute() {
  talk.muted = !talk.muted;
  press($("mute"), talk.muted);
  $("mute").title = talk.muted ? "Unmute (M)" : "Mute (M)";
}

async function watch() {
  const on = $("camera").getAttribute("aria-pressed") !== "true";
  press($("camera"), on);
  if (!on) return camera.close();
  try {
    await camera.open(talk.profile.cameraMs, (picture) => talk.picture(picture));
  } catch (error) {
    press($("camera"), false);
    notice(`The camera cannot be used (${error.message}).`);
  }
}

function hold(down) {
  if (!talk || talk.line.over || talk.profile.turn !== "hold" || down === talk.ptt.held) return;
  $("hold").classList.toggle("held", down);
  $("hold").textContent = down ? "Let go to send" : "Hold to talk";
  if (down) talk.hold();
  else talk.letGo();
}

$("welcome").addEventListener("submit", start);
$("mute").addEventListener("click", mute);
for (const id of ["mute", "camera"]) {
  $(id).addEventListener("click", ({ detail }) => {
    if (detail && talk.profile.turn === "hold") $("hold").focus(); // who points goes on with the space bar
  });
}
$("interrupt").addEventListener("click", () => talk.interrupt());
$("send").addEventListener("click", () => talk.commit());
$("camera").addEventListener("click", watch);
$("drop").addEventListener("click", () => talk.line.drop());
$("end").addEventListener("click", () => talk.line.close());
$("again").addEventListener("click", () => {
  rest();
  $("welcome").querySelector("[type=submit]").focus();
});
$("follow").addEventListener("click", () => timeline.follow());
$("unfold").addEventListener("click", () => unfold($("wire").hidden));
$("settings").addEventListener("toggle", () => unfolded());
$("write").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = $("words").value.trim();
  if (words) talk.write(words);
  $("words").value = "";
});

$("hold").addEventListener("pointerdown", (event) => {
  $("hold").setPointerCapture(event.pointerId);
  hold(true);
});
for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
  $("hold").addEventListener(end, () => hold(false));
}
for (const end of ["pointerup", "blur"]) addEventListener(end, () => hold(false));
$("hold").addEventListener("contextmenu", (event) => event.preventDefault());

/** Keys that mean something wherever one is, unless one is writing or on a control that wants them itself. */
addEventListener("keydown", (event) => {
  if (!talk || talk.line.over || event.ctrlKey || event.metaKey || event.altKey) return;
  const { target } = event;
  if (event.key === "Escape" && target !== $("timeline")) talk.interrupt();
  if (target.matches("input, summary, pre")) return;
  if (event.key.toLowerCase() === "m") mute();
  if (event.key === " " && talk.profile.turn === "hold" && (target === $("hold") || !target.matches("button"))) {
    event.preventDefault();
    if (!event.repeat) hold(true);
  }
});
addEventListener("keyup", (event) => {
  if (event.key === " ") hold(false);
});
addEventListener("online", () => talk?.line.hurry());
document.addEventListener("visibilitychange", () => {
  if (talk && !talk.line.over && !document.hidden) talk.sound?.context.resume(); // phones take the sound away
});
addEventListener("pagehide", leave);
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());

// -- what is remembered of one tab -------------------------------------------------------------------------------

function remember() {
  chosen = $("welcome").elements.profile.value;
  sessionStorage.setItem("profile", chosen);
  sessionStorage.setItem("key", $("key").value.trim());
  sessionStorage.setItem("model", $("model").value.trim());
}

function offer() {
  for (const [name, { title, hint }] of Object.entries(PROFILES)) {
    const label = document.createElement("label");
    label.className = "profile";
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "profile", value: name });
    input.checked = name === chosen;
    const [strong, small] = ["b", "small"].map((tag) => document.createElement(tag));
    strong.textContent = title;
    small.textContent = hint;
    label.append(input, strong, small);
    $("profiles").append(label);
  }
}

if (!(chosen in PROFILES)) chosen = "conversation";
offer();
$("key").value = sessionStorage.getItem("key") ?? "";
$("model").value = sessionStorage.getItem("model") ?? "";
unfold(!NARROW.matches);
show("rest");
const left = kept();
if (left) comeBack(left);

/** For the console, and for tests. */
export const page = {
  timeline,
  get talk() {
    return talk;
  },
};
globalThis.antiphon = page;
