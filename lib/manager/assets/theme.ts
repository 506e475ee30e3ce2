/**
 * Applies the light, dark or system theme, and stores the choice.
 */

export type Theme = "system" | "light" | "dark";

const KEY = "edge-gateway-theme";
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };

/** Applies and returns the stored choice. */
export function restoreTheme(): Theme {
  const theme = stored();
  show(theme);
  return theme;
}

/** Applies and stores the theme after `theme`. */
export function nextTheme(theme: Theme): Theme {
  const next = NEXT[theme];
  show(next);
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // Storage is disabled: the choice lasts as long as the page.
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
