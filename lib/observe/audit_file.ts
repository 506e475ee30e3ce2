/**
 * Opens the file of an audit log, and finds the end of the chain in it.
 */
import { closeSync, constants, fchmodSync, fstatSync, openSync, readSync } from "node:fs";
import { chainedLine, MAX_LINE_BYTES, type Chain } from "../base/audit_chain.ts";
import { whyUnwritable } from "./log_file.ts";

const { O_RDWR, O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK } = constants;
const LINE_FEED = 0x0a;
/** How each line begins. */
const BEGINNING = '{"seq":';

/**
 * Throws, with the reason in plain words, for what is no file, and for one that other users may open and that cannot be closed to them. `check`
 * throws for a file with something else, whose mode stays as it is.
 */
export function openAuditFile(path: string, check: (fd: number) => void): number {
  let fd: number;
  try {
    // Not a link, which another user of a folder could have made, and without waiting for a pipe.
    fd = openSync(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0o600);
  } catch (error) {
    const isLink = (error as NodeJS.ErrnoException).code === "ELOOP";
    throw new Error(isLink ? "it is a symbolic link: name the file itself" : whyUnwritable(error), { cause: error });
  }
  try {
    const found = fstatSync(fd);
    if (!found.isFile()) throw new Error("it is no file");
    check(fd);
    if ((found.mode & 0o077) !== 0) makeOwn(fd);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function makeOwn(fd: number): void {
  try {
    fchmodSync(fd, 0o600);
  } catch (error) {
    throw new Error("other users may open it: chmod 600", { cause: error });
  }
}

/** Brings the chain to the end of the file. Returns whether its last line is torn. Throws if it has no chain. */
export function followFile(fd: number, chain: Chain): boolean {
  const { size } = fstatSync(fd);
  const bytes = Buffer.alloc(Math.min(size, 2 * MAX_LINE_BYTES));
  const end = bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, size - bytes.length));
  const isTorn = end.length > 0 && end.at(-1) !== LINE_FEED;
  const lines = linesIn(isTorn ? end : end.subarray(0, -1));
  if (end.length < size) lines.shift();
  const last = lines.findLastIndex((line) => chainedLine(line) !== null);
  // The first line that was written may be torn.
  const isBegun = isTorn && lines.length === 1 && BEGINNING.startsWith(lines[0]!.toString("latin1", 0, BEGINNING.length));
  if (last < 0 && size > 0 && !isBegun) throw new Error("it has something else than an audit log: name another file");
  lines.slice(Math.max(last, 0)).forEach((line) => chain.follow(line, chainedLine(line)?.seq ?? null));
  return isTorn;
}

function linesIn(bytes: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  let from = 0;
  for (let at = bytes.indexOf(LINE_FEED); at >= 0; at = bytes.indexOf(LINE_FEED, from)) {
    lines.push(bytes.subarray(from, at));
    from = at + 1;
  }
  if (bytes.length > 0) lines.push(bytes.subarray(from));
  return lines;
}

/** Whether both lead to one file. */
export function isSameFile(fd: number, other: number): boolean {
  const [one, two] = [fstatSync(fd), fstatSync(other)];
  return one.ino === two.ino && one.dev === two.dev;
}
