// The one popover of the page: it explains what the pointer or the keyboard is at.

import { element } from "./text.js";

const box = element("div", { id: "popover", role: "dialog", "aria-label": "Explanation", hidden: true });
document.body.append(box);

let anchor = null;
let pinned = false;
let closing = 0;

// Makes `show` explain the parts of a picture that match: while the pointer or the keyboard is there, or, once pinned by
// a click or Enter, until it is closed. `key` gets the other keys.
export function explains(root, selector, show, key) {
	const on = (kind, act) => root.addEventListener(kind, (event) => {
		const part = event.target.closest(selector);
		if (part) act(part, event);
	});
	on("pointerover", (part, event) => event.pointerType === "mouse" && show(part));
	on("pointerout", hideSoon);
	on("click", (part) => show(part, "pin"));
	on("keydown", (part, event) => {
		if (!["Enter", " "].includes(event.key)) return key(event, part);
		event.preventDefault();
		show(part, "pin");
		box.querySelector("button")?.focus();
	});
}

// Shows `content` beside an element; `how` is "pin" if it has to stay until it is closed.
export function show(target, content, how) {
	const pin = how === "pin";
	if (pinned && !pin) return;
	clearTimeout(closing);
	if (pin && pinned && anchor === target && !box.hidden) return hide();
	anchor = target;
	pinned = pin;
	box.classList.toggle("pinned", pin);
	box.replaceChildren(...content());
	box.hidden = false;
	place();
}

function place() {
	const at = anchor.getBoundingClientRect();
	const [width, height] = [document.documentElement.clientWidth - box.offsetWidth - 8, innerHeight - box.offsetHeight - 8];
	// Below, or above where there is more room.
	const top = at.bottom > height && at.top > box.offsetHeight ? at.top - box.offsetHeight - 6 : at.bottom + 6;
	box.style.setProperty("left", Math.max(8, Math.min(at.left, width)) + "px");
	box.style.setProperty("top", Math.max(8, Math.min(top, height)) + "px");
}

// Closes it, and gives the focus back to what it explained.
export function hide() {
	if (box.hidden) return;
	// The focus on it would show it again later.
	if (box.contains(document.activeElement)) anchor.focus();
	clearTimeout(closing);
	box.hidden = true;
	pinned = false;
	anchor = null;
}

// Closes it soon, unless the pointer comes back or it is pinned.
export function hideSoon() {
	clearTimeout(closing);
	if (!pinned) closing = setTimeout(hide, 150);
}

box.addEventListener("pointerenter", () => clearTimeout(closing));
box.addEventListener("pointerleave", hideSoon);
box.addEventListener("keydown", (event) => {
	const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
	if (!step) return;
	event.preventDefault();
	const buttons = [...box.querySelectorAll("button")];
	buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length]?.focus();
});
addEventListener("keydown", (event) => {
	if (event.key !== "Escape" || box.hidden) return;
	event.stopImmediatePropagation();
	hide();
}, true);
addEventListener("pointerdown", (event) => {
	if (!box.hidden && !box.contains(event.target) && !anchor?.contains(event.target)) hide();
}, true);
addEventListener("scroll", (event) => {
	if (!box.hidden && !box.contains(event.target)) (pinned && anchor.isConnected ? place : hide)();
}, true);
