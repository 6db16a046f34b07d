// Updates the page after changes and adds keyboard shortcuts. All other features work without this script.
"use strict";

let source = null;

function connect() {
  // The server immediately reports changes made after the page was rendered.
  source = new EventSource(`/page/events?since=${document.body.dataset.version}`);
  for (const kind of ["call", "change"]) {
    source.addEventListener(kind, () => refresh(kind));
  }
}

function refresh(kind) {
  // An update would discard the input of a form in use.
  if (!document.activeElement?.closest("#live form")) {
    htmx.trigger(document.body, "sandbox-" + kind);
  }
}

document.addEventListener("visibilitychange", () => {
  // Browsers allow six connections per server, so hidden tabs release theirs.
  if (document.hidden) {
    source?.close();
  } else {
    connect();
  }
});

setInterval(() => {
  const clock = document.getElementById("clock");
  if (clock && !("frozen" in clock.dataset)) {
    clock.dataset.seen ??= Date.now();
    const now = Number(clock.dataset.now) + Date.now() - Number(clock.dataset.seen);
    clock.firstElementChild.textContent = new Date(now).toISOString().slice(0, 19).replace("T", " ");
  }
}, 1000);

function moveFocus(by) {
  const links = [...document.querySelectorAll("table.rows tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
  const place = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, place + by))]?.focus();
}

const KEYS = {
  "/": () => document.getElementById("q")?.focus(),
  j: () => moveFocus(1),
  k: () => moveFocus(-1),
  n: () => document.querySelector("a[rel=next]")?.click(),
  u: () => (document.querySelector("a[data-up]") ?? document.querySelector("header a.name")).click(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (typing && event.key === "Escape") {
    event.preventDefault();
    event.target.blur();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

connect();
