/**
 * Applies the light, dark or system theme, and stores the choice.
 */

const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEY = "edge-gateway-theme";

/** Applies and returns the stored choice. */
export function restoreTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return applied(THEMES.find((each) => each === stored) ?? "system");
  } catch {
    return applied("system");
  }
}

/** Applies and stores the theme after `theme`. */
export function nextTheme(theme: Theme): Theme {
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]!;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Storage is disabled: the choice lasts as long as the page.
  }
  return applied(next);
}

/** The styles know "light" and "dark". */
function applied(theme: Theme): Theme {
  document.documentElement.dataset.theme = theme;
  return theme;
}
