/**
 * Masks the secrets in the text of a configuration, and keeps the rest of it byte for byte.
 */
import { atOnce } from "../base/time_slices.ts";
import { MASK } from "../config/schema_core.ts";
import { concealerOf, type WithSecrets } from "../config/secrets.ts";
import { REDACTED } from "../http/redact.ts";
import { testText, type Conceal } from "../proof/displayed.ts";

const STRUCTURE = /["{}[\],]/g;

/**
 * Strings and what structures them; all else of a valid text is values without secrets. A pattern for whole strings
 * overflows the stack at some millions of characters.
 */
function* tokensOf(text: string): Generator<{ readonly token: string; readonly index: number }> {
  const structure = new RegExp(STRUCTURE);
  for (let found = structure.exec(text); found !== null; found = structure.exec(text)) {
    const { 0: first, index } = found;
    if (first === '"') structure.lastIndex = endOfString(text, index + 1);
    yield { token: first === '"' ? text.slice(index, structure.lastIndex) : first, index };
  }
}

/** Behind the closing quote of a string, whose content begins at `from`. */
function endOfString(text: string, from: number): number {
  for (let at = text.indexOf('"', from); at >= 0; at = text.indexOf('"', at + 1)) {
    let escapes = at;
    while (text[escapes - 1] === "\\") escapes--;
    if ((at - escapes) % 2 === 0) return at + 1;
  }
  return text.length;
}

/** `valid`: what the text, which has no errors, was read as. `masked`: how many of its texts are masked. */
export function maskedText(text: Buffer, valid: WithSecrets): Masked {
  return atOnce(maskSteps(text, valid));
}

interface Masked {
  readonly text: Buffer;
  readonly masked: number;
}

/** The same in steps, for `inSlices`. */
export function* maskSteps(text: Buffer, valid: WithSecrets): Generator<void, Masked> {
  const conceal = concealerOf(valid);
  const marked = new Map(valid.secrets.marked.map(({ at, masked }) => [JSON.stringify(at), masked]));
  const written = text.toString();
  const path: (string | number)[] = [];
  let isKey = false;
  let result = "";
  let from = 0;
  let count = 0;
  let tokens = 0;
  for (const { token, index } of tokensOf(written)) {
    if (++tokens % TOKENS_OF_A_STEP === 0) yield;
    if (token === "{" || token === "[") {
      path.push(token === "{" ? "" : 0);
      isKey = token === "{";
    } else if (token === "}" || token === "]") {
      path.pop();
      isKey = false;
    } else if (token === ",") {
      const last = path.at(-1)!;
      isKey = typeof last === "string";
      if (typeof last === "number") path[path.length - 1] = last + 1;
    } else if (isKey) {
      path[path.length - 1] = JSON.parse(token) as string;
      isKey = false;
    } else {
      const value = JSON.parse(token) as string;
      const shown =
        path[0] === "tests" ? inTest(path, value, conceal) : conceal(marked.get(JSON.stringify(path)) ?? value);
      if (shown === value) continue;
      result += written.slice(from, index) + JSON.stringify(shown);
      from = index + token.length;
      count++;
    }
  }
  return { text: Buffer.from(result + written.slice(from)), masked: count };
}

/** About a millisecond of work. */
const TOKENS_OF_A_STEP = 500;

/**
 * Where a text has a mask that `former`, the text which it is to replace, has not: whoever wrote it was shown masks,
 * which would replace the secrets. A text such as "a ******** b" may be no mask; a whole one always is. -1: nowhere.
 */
export function maskIn(text: string, former: string): number {
  if (!text.includes(MASK)) return -1;
  for (const { token, index } of tokensOf(text))
    if (token.includes(MASK) && (token.length === MASK.length + 2 || !former.includes(token))) return index;
  return -1;
}

/** As reports show it. */
function inTest(path: readonly (string | number)[], value: string, conceal: Conceal): string {
  const names = path.slice(1).filter((step) => typeof step === "string");
  return testText(names, value, conceal).replaceAll(REDACTED, MASK);
}
