/**
 * `edge-gateway hash-password`: reads a password from standard input, since process lists show arguments, and prints
 * its hash.
 */
import { createInterface } from "node:readline";
import { hashPassword as hash } from "../base/password.ts";
import type { RunCommand } from "./arguments.ts";
import { Failure } from "./failure.ts";

export const hashPassword: RunCommand = async () => {
  const [password = "", again] = await readPassword();
  if (password === "")
    throw new Failure("the password is empty; write it to standard input: edge-gateway hash-password < file", 2);
  // A mistyped password would lock out all administrators.
  if (again !== password && process.stdin.isTTY) throw new Failure("the two passwords are not the same", 2);
  process.stdout.write(`${await hash(password)}\n`);
  return 0;
};

/** The first line of standard input. At a terminal the user types it twice, without echo. */
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
