/**
 * Text for terminals: without control characters, and with colours where the terminal has them.
 */
import { styleText } from "node:util";

/** Replaces control characters, which would act on the terminal. */
export function withoutControls(text: string): string {
  return text.replace(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, "?");
}

/** JSON without control characters in any of its texts. */
export function withoutAnyControls<T>(json: T): T {
  return JSON.parse(JSON.stringify(json), (_, value: unknown) =>
    typeof value === "string" ? withoutControls(value) : value,
  ) as T;
}

/** The lines without control characters. */
export function printable(lines: readonly string[]): string {
  return `${lines.map(withoutControls).join("\n")}\n`;
}

/** What a text says of the thing that it names. */
export type Style = "good" | "bad" | "faint";
export type Paint = (style: Style, text: string) => string;

/** Colours, if the stream is a terminal that has them; none with NO_COLOR (https://no-color.org) or TERM=dumb. */
export function paintFor(stream: NodeJS.WriteStream): Paint {
  return stream.isTTY && stream.hasColors() ? inColour : plain;
}

const STYLES = { good: "green", bad: "red", faint: "dim" } as const;

export const inColour: Paint = (style, text) => styleText(STYLES[style], text, { validateStream: false });
export const plain: Paint = (_, text) => text;
