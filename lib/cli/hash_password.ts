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
  const [password = "", again] = await readPassword();
  if (password === "") throw new UsageError("the password is empty; write it to standard input: edge-gateway hash-password < file");
  // What cannot be seen while it is typed is mistyped unseen, and locks everybody out.
  if (again !== password && process.stdin.isTTY) throw new UsageError("the two passwords are not the same");
  process.stdout.write(`${await hashPassword(password)}\n`);
  return 0;
}

/** The first line of standard input. At a terminal it is asked for twice, and not echoed. */
function readPassword(): Promise<readonly string[]> {
  const { stdin, stderr } = process;
  const terminal = stdin.isTTY === true;
  const prompts = terminal ? ["Password: ", "Once more: "] : [""];
  // readline without an output echoes nothing, and switches the terminal's own echo off while it reads.
  const lines = createInterface({ input: stdin, terminal });
  const read: string[] = [];
  stderr.write(prompts[0]!);
  return new Promise((resolve) => {
    lines.on("line", (line) => {
      read.push(line);
      if (terminal) stderr.write(`\n${prompts[read.length] ?? ""}`);
      if (read.length === prompts.length) lines.close();
    });
    lines.once("close", () => {
      stdin.destroy();
      resolve(read.slice(0, prompts.length));
    });
  });
}
