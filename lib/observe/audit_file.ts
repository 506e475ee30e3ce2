/**
 * Opens the file of an audit log, and finds the end of the chain in it.
 */
import { closeSync, constants, fchmodSync, fstat, fstatSync, read, readSync } from "node:fs";
import { promisify } from "node:util";
import { LINE_FEED, MAX_LINE_BYTES, type Chain } from "../base/audit_chain.ts";
import { openRegularFile } from "../base/regular_file.ts";
import { whyUnwritable } from "./log_file.ts";

const { O_RDWR, O_APPEND, O_CREAT, O_NOFOLLOW, O_DSYNC } = constants;
/** How each line begins. */
const BEGINNING = '{"seq":';

export interface AuditFile {
  readonly fd: number;
  /** Its last line has no newline. */
  isCut: boolean;
}

/**
 * Brings a new chain to the end of the file. Throws, with the reason in plain words, for what is no file or has
 * something else, which stays as it is, and for a file that other users may open and that cannot be closed to them.
 */
export function openAuditFile(path: string, chain: Chain): AuditFile {
  let fd: number;
  try {
    // Not a link, which another user of a folder could have made. A write ends on the disk: Node's permission model
    // forbids `fdatasync`.
    fd = openRegularFile(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_DSYNC, 0o600);
  } catch (error) {
    const isLink = (error as NodeJS.ErrnoException).code === "ELOOP";
    throw new Error(isLink ? "it is a symbolic link: name the file itself" : whyUnwritable(error), { cause: error });
  }
  try {
    const isCut = followFile(fd, chain);
    if ((fstatSync(fd).mode & 0o077) !== 0) makeOwn(fd);
    return { fd, isCut };
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

function followFile(fd: number, chain: Chain): boolean {
  const { size } = fstatSync(fd);
  const bytes = Buffer.alloc(Math.min(size, 2 * MAX_LINE_BYTES));
  const end = bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, size - bytes.length));
  const isCut = chain.followEnd(end);
  // The first line that was written may be torn.
  const isBegun =
    isCut && !end.includes(LINE_FEED) && BEGINNING.startsWith(end.toString("latin1", 0, BEGINNING.length));
  if (chain.seq === 0 && size > 0 && !isBegun)
    throw new Error("it has something else than an audit log: name another file");
  return isCut;
}

/**
 * How many of these bytes, of which the first line is in no file so far, are the end of the file; 0 where it cannot be
 * read.
 */
export async function landedAt(fd: number, bytes: Buffer): Promise<number> {
  try {
    const { size } = await promisify(fstat)(fd);
    const room = Buffer.alloc(Math.min(size, bytes.length));
    const { bytesRead } = await promisify(read)(fd, room, 0, room.length, size - room.length);
    const end = room.subarray(0, bytesRead);
    for (let at = end.indexOf(bytes[0]!); at >= 0; at = end.indexOf(bytes[0]!, at + 1)) {
      if (bytes.compare(end, at, end.length, 0, end.length - at) === 0) return end.length - at;
    }
  } catch {
    // The disk is gone.
  }
  return 0;
}

/** Whether both lead to one file. */
export function isSameFile(fd: number, other: number): boolean {
  const one = fstatSync(fd);
  const two = fstatSync(other);
  return one.ino === two.ino && one.dev === two.dev;
}
