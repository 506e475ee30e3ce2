/**
 * Finds the line and the column of an error in the code of a plugin module, for its author. Loaded with the first
 * module.
 */
import { console as toInspector, Session, type Runtime } from "node:inspector";

/**
 * " (line 3, column 18)", or "" where the error has no place in the module. `label`: the query in the URL of its
 * frames.
 */
export function placeIn(error: Error, code: string, label: string): string {
  const frame = String(error.stack)
    .split("\n")
    .find(
      (line) => line.startsWith("    at ") && (line.includes(`?${label}:`) || line.includes("data:text/javascript")),
    );
  const [, line, column] =
    frame === undefined
      ? (error.name === "SyntaxError" && compiledAt(error, code)) || []
      : (/:(\d+):(\d+)\)?$/.exec(frame) ?? []);
  return line === undefined ? "" : ` (line ${line}, column ${column})`;
}

/**
 * Where the compiler stopped. V8 keeps that with the error, and tells it only by the inspector's protocol, here within
 * the thread.
 */
function compiledAt(error: Error, code: string): readonly [unknown: null, line: number, column: number] | null {
  const session = new Session();
  let errorObjectId: string | undefined;
  let found: Runtime.ExceptionDetails | undefined;
  try {
    session.connect();
    session.on("Runtime.consoleAPICalled", ({ params }) => (errorObjectId = params.args[0]?.objectId));
    session.post("Runtime.enable");
    // The last message of a console that nobody sees.
    toInspector.debug(error);
    session.post(
      "Runtime.getExceptionDetails",
      { errorObjectId },
      (_none: unknown, answer?: { exceptionDetails?: Runtime.ExceptionDetails }) => (found = answer?.exceptionDetails),
    );
  } catch {
    // Node's permission model forbids the inspector.
  } finally {
    session.disconnect();
  }
  if (found === undefined || found.lineNumber < 0) return null;
  const lines = code.split("\n");
  // A module that ends before it is complete: the lines behind are the loader's.
  return found.lineNumber < lines.length
    ? [null, found.lineNumber + 1, found.columnNumber + 1]
    : [null, lines.length, lines.at(-1)!.length + 1];
}
