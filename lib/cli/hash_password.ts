/**
 * `edge-gateway hash-password`: reads a password from standard input, where no process list shows it, and prints its hash.
 */
import { createInterface } from "node:readline";
import { hashPassword } from "../base/password.ts";
import { onlyFlags, UsageError, type Arguments } from "./arguments.ts";
import type { ExitCode } from "./failure.ts";

export async function hashPasswordCommand(given: Arguments): Promise<ExitCode> {
  // It is not repeated: it may be the password.
  if (given.operands.length > 0) throw new UsageError('"hash-password" takes no password on the command line, where others could read it: write it to standard input');
  onlyFlags(given, [], 0);
  const password = await readLine();
  if (password === "") throw new UsageError("the password is empty; write it to standard input: edge-gateway hash-password < file");
  process.stdout.write(`${await hashPassword(password)}\n`);
  return 0;
}

/** The first line of standard input. At a terminal it is asked for, and not echoed. */
function readLine(): Promise<string> {
  const { stdin, stderr } = process;
  const terminal = stdin.isTTY === true;
  if (terminal) stderr.write("Password: ");
  // readline without an output echoes nothing, and switches the terminal's own echo off while it reads.
  const lines = createInterface({ input: stdin, terminal });
  return new Promise((resolve) => {
    let first: string | null = null;
    lines.once("line", (line) => {
      first = line;
      lines.close();
    });
    lines.once("close", () => {
      if (terminal) stderr.write("\n");
      stdin.destroy();
      resolve(first ?? "");
    });
  });
}
