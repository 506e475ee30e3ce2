/**
 * Light, dark, or as the system has it: sets what was chosen before, and the next choice.
 * The colours themselves stand in style.css.
 */

export type Theme = "system" | "light" | "dark";

const KEY = "edge-gateway-theme";
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };

/** What was chosen before; also sets it. */
export function restoreTheme(): Theme {
  const theme = stored();
  show(theme);
  return theme;
}

/** The one after `theme`: set, and kept where the browser keeps things. */
export function nextTheme(theme: Theme): Theme {
  const next = NEXT[theme];
  show(next);
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // Storage is turned off: the choice holds as long as the page does.
  }
  return next;
}

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

function show(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
