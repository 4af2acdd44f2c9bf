/** What a conversation needs to go on after a reload: it stands in the tab while no page does, and no longer. */

const KEY = "conversation";

export function keep(state) {
  try {
    if (state) sessionStorage.setItem(KEY, JSON.stringify(state));
  } catch {
    // More than a tab may hold: the session waits out its grace.
  }
}

/** Take what was kept; a copy of the tab, or another reload, does not find it again. */
export function kept() {
  const text = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}
