/**
 * Flattens settings into lines of a name and a value. What is secret the gateway has masked.
 */
import { isRecord } from "./json_text.ts";

interface SettingLine {
  /** "keys[0].id" */
  readonly name: string;
  readonly value: string;
}

/** What the gateway shows in place of a secret. */
export const MASK = "********";

/** In the order of the configuration; null, empty lists and empty objects have their own line. */
export function settingLines(settings: unknown): readonly SettingLine[] {
  const lines: SettingLine[] = [];
  flatten("", settings, lines);
  return lines;
}

/** The first few settings in one line: "limit_second 5 · limit_by client_ip · …". */
export function summaryOf(settings: unknown, most = 3): string {
  const lines = settingLines(settings);
  const shown = lines.slice(0, most).map(({ name, value }) => `${name} ${shorten(value)}`);
  if (lines.length > most) shown.push("…");
  return shown.join(" · ");
}

function flatten(name: string, value: unknown, lines: SettingLine[]): void {
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    if (items.some(isRecord)) return items.forEach((item, i) => flatten(`${name}[${i}]`, item, lines));
    return void lines.push({ name, value: valueText(value) });
  }
  if (isRecord(value)) {
    const members = Object.entries(value);
    if (members.length === 0 && name !== "") lines.push({ name, value: "none" });
    for (const [member, inner] of members) flatten(name === "" ? member : `${name}.${member}`, inner, lines);
    return;
  }
  if (name !== "") lines.push({ name, value: textOf(value) });
}

/** A list as its items. */
export function valueText(value: unknown): string {
  if (!Array.isArray(value)) return textOf(value);
  return value.length === 0 ? "none" : value.map(textOf).join(", ");
}

function textOf(value: unknown): string {
  if (value === true) return "yes";
  if (value === false) return "no";
  if (value === null || value === undefined) return "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function shorten(text: string): string {
  return text.length > 32 ? `${text.slice(0, 31)}…` : text;
}
