/**
 * Flattens settings into lines of a name and a value, and decides which values are secret.
 */

export interface SettingLine {
  /** "keys[0].key" */
  readonly name: string;
  readonly value: string;
  readonly secret: boolean;
}

/** Shown in place of a secret; its length does not depend on the secret's. */
export const MASK = "••••••";

const SECRET_WORDS = new Set([
  ...["key", "keys", "apikey", "apikeys", "password", "passwords", "passwd", "passphrase", "pass", "secret", "secrets", "token", "tokens"],
  ...["credential", "credentials", "authorization", "cookie", "private", "sha256", "hash", "hashes", "signature"],
]);
/** Last parts of names that refer to a secret without containing it: token_header, key_file, secret_id, hash_on. */
const HARMLESS_SUFFIXES = new Set("by file files from header headers id ids in mode ms name names on path query ratio s uri url".split(" "));
/** A reference is not a secret: it names where one is stored. */
const REFERENCE = /^\$\{(?:env|file):[^${}]+\}$/;
const PASSWORD_IN_URL = /^[a-z][a-z0-9+.-]*:\/\/[^/?#@]*:[^/?#@]+@/i;

/** In the order of the configuration; null, empty lists and empty objects have their own line. */
export function settingLines(settings: unknown): readonly SettingLine[] {
  const lines: SettingLine[] = [];
  flatten("", settings, false, lines);
  return lines;
}

/** The first few settings in one line: "limit_second 5 · limit_by client_ip · …". */
export function summaryOf(settings: unknown, most = 3): string {
  const lines = settingLines(settings);
  const shown = lines.slice(0, most).map(({ name, value, secret }) => `${name} ${secret ? MASK : shorten(value)}`);
  if (lines.length > most) shown.push("…");
  return shown.join(" · ");
}

/** Whether a text under this name is to be hidden. */
export function isSecret(name: string, value: string): boolean {
  return !REFERENCE.test(value) && (isSecretName(name) || PASSWORD_IN_URL.test(value));
}

/** Names of settings are in snake_case, names of headers are not: headers are hidden when in doubt. */
function isSecretName(name: string): boolean {
  const words = name
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
  if (!words.some((word) => SECRET_WORDS.has(word))) return false;
  return !/^[a-z0-9_]+$/.test(name) || !(words.includes("public") || HARMLESS_SUFFIXES.has(words.at(-1)!));
}

function flatten(name: string, value: unknown, secret: boolean, lines: SettingLine[]): void {
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    if (items.length === 0) return void lines.push({ name, value: "none", secret: false });
    if (items.some(isObject)) return items.forEach((item, i) => flatten(`${name}[${i}]`, item, false, lines));
    const hidden = items.some((item) => typeof item === "string" && (secret ? !REFERENCE.test(item) : isSecret(lastOf(name), item)));
    return void lines.push({ name, value: items.map(textOf).join(", "), secret: hidden });
  }
  if (isObject(value)) {
    const members = Object.entries(value);
    if (members.length === 0 && name !== "") lines.push({ name, value: "none", secret: false });
    // Members of an object in a list are judged by their own names: in keys[0], "key" is a secret and "id" is not.
    const within = secret || (name !== "" && !name.endsWith("]") && isSecretName(lastOf(name)));
    for (const [member, inner] of members) flatten(name === "" ? member : `${name}.${member}`, inner, within, lines);
    return;
  }
  if (name === "") return;
  const text = textOf(value);
  const hidden = typeof value === "string" && (secret ? !REFERENCE.test(value) : isSecret(lastOf(name), value));
  lines.push({ name, value: text, secret: hidden });
}

function lastOf(name: string): string {
  return name.slice(name.lastIndexOf(".") + 1).replace(/\[\d+\]$/, "");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
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
