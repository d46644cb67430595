/** Notifications of the operating system, if the person and the browser allow them. */

import { remember, remembered } from "./memory.js";
import { goTo } from "./router.js";

/** @returns {"missing" | "denied" | "on" | "off"} */
export function notifyState() {
  if (typeof Notification === "undefined" || !isSecureContext) return "missing";
  if (Notification.permission === "denied") return "denied";
  return Notification.permission === "granted" && remembered("notify") === "on" ? "on" : "off";
}

/** @param {boolean} wanted @returns {Promise<void>} */
export async function wantNotifications(wanted) {
  if (wanted && (await Notification.requestPermission()) !== "granted") return;
  remember("notify", wanted ? "on" : null);
}

/**
 * Says it where nobody is looking at the page; of several tabs' messages with one key the system shows one.
 * @param {string} title @param {string} body @param {string} key @param {string} path
 */
export function notifySystem(title, body, key, path) {
  if (notifyState() !== "on" || !document.hidden) return;
  try {
    const shown = new Notification(title, { body, tag: `gradsight/${key}` });
    shown.addEventListener("click", () => {
      focus();
      goTo(path);
    });
  } catch {
    // Chrome on Android has the constructor and refuses it.
  }
}
