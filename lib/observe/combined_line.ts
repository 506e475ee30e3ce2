/**
 * Writes one finished request as a line of the access log in Apache's combined format.
 */
import { headerValue } from "../http/headers.ts";
import { redactedPath } from "../http/redact.ts";
import { beforeQuery, isPlain, pathOf, perSecond, plainPath, short, type LineFormat } from "./access_line.ts";

/** `%h - %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`, times in UTC. */
export function combinedLines(): LineFormat {
  const dateOf = perSecond((wall) => {
    const [, day, month, year, time] = new Date(wall).toUTCString().split(" ");
    return `${day}/${month}/${year}:${time} +0000`;
  });
  return ({ call, method, target, httpVersion, clientAddress, headers }, _now, wall) => {
    const { notes } = call;
    const referer = headerValue(headers, "referer");
    const agent = headerValue(headers, "user-agent");
    // Readers of this format expect a number: 499 is nginx's for a client that disconnected before an answer.
    const status = notes.status ?? (call.aborted ? 499 : "-");
    const path = plainPath(target) ?? inQuotes(redactedPath(pathOf(target)));
    return (
      `${bare(clientAddress)} - ${bare(notes.identity)} [${dateOf(wall)}] ` +
      // As Apache has it for a request whose line could not be read.
      (method === "" ? '"-" ' : `"${inQuotes(method)} ${path} HTTP/${httpVersion}" `) +
      `${status} ${notes.sent === null || notes.sent === 0 ? "-" : notes.sent} ` +
      (`"${referer === undefined ? "-" : inQuotes(short(withoutSecrets(referer)))}" ` +
        `"${agent === undefined ? "-" : inQuotes(short(agent))}"\n`)
    );
  };
}

/** A URL without user, password and query, and without secrets in its path. */
function withoutSecrets(url: string): string {
  return redactedPath(beforeQuery(url).replace(/^([a-z][a-z0-9+.-]*:)?\/\/[^/]*@/i, "$1//"));
}

/** As Apache escapes: `\"`, `\\`, and `\xhh` for all that is not printable ASCII. */
function inQuotes(text: string): string {
  return isPlain(text) ? text : text.replace(/["\\]/g, "\\$&").replace(/[^\x20-\x7e]/gu, hex);
}

/** A field that blanks end. */
function bare(text: string | null): string {
  return text === null || text === "" ? "-" : inQuotes(text).replaceAll(" ", "\\x20");
}

/** A character above U+00FF as its bytes in UTF-8. */
function hex(character: string): string {
  return BYTES[character.charCodeAt(0)] ?? [...Buffer.from(character)].map((byte) => BYTES[byte]).join("");
}

/** Made beforehand: a path of 16000 such characters would take 7 ms. */
const BYTES = Array.from({ length: 0x100 }, (_none, byte) => `\\x${byte.toString(16).padStart(2, "0")}`);
