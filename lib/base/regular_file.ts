/**
 * Reads and writes files that users name, and says why one cannot be read or written. Nothing waits: a FIFO or a device
 * in place of a file, whose reading or writing may never end, is refused.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readSync,
  writeFileSync,
} from "node:fs";
import { missingPermission } from "./errors.ts";
import { atOnce } from "./time_slices.ts";

/** Throws the system's error, or one that says what is there instead of a file. */
export function readRegularFile(path: string): Buffer {
  return atOnce(readFileSteps(path));
}

/** Less than a millisecond of work. */
const BYTES_OF_A_STEP = 500_000;

/**
 * The same in steps, for `inSlices`. A file that somebody writes meanwhile is read again, twice at most: half of the
 * one and half of the other content could be taken for a third one.
 */
export function* readFileSteps(path: string): Generator<void, Buffer> {
  const fd = openRegularFile(path, constants.O_RDONLY);
  try {
    for (let tries = 1; ; tries++) {
      const before = fstatSync(fd, { bigint: true });
      const content = yield* contentSteps(fd, Number(before.size));
      const after = fstatSync(fd, { bigint: true });
      const isSame = before.size === after.size && before.mtimeNs === after.mtimeNs;
      // Files of the system tell no size, and have the time at which they are asked.
      if (isSame || before.size === 0n || tries === MAX_TRIES) return content;
    }
  } finally {
    closeSync(fd);
  }
}

const MAX_TRIES = 3;

function* contentSteps(fd: number, size: number): Generator<void, Buffer> {
  if (size === 0) return readFileSync(fd);
  const whole = Buffer.allocUnsafeSlow(size);
  for (let length = 0; length < size; yield) {
    const read = readSync(fd, whole, length, Math.min(size - length, BYTES_OF_A_STEP), length);
    if (read === 0) return whole.subarray(0, length);
    length += read;
  }
  return whole;
}

/**
 * Throws as `readRegularFile`. `mode` is that of the file afterwards, also of one that was there; default: a new one
 * has what the system gives it. `isNew`: where something is there, it throws EEXIST.
 */
export function writeRegularFile(
  path: string,
  text: string,
  { mode, isNew = false }: { readonly mode?: number; readonly isNew?: boolean } = {},
): void {
  const { O_CREAT, O_EXCL, O_WRONLY } = constants;
  const fd = openRegularFile(path, O_WRONLY | O_CREAT | (isNew ? O_EXCL : 0), mode);
  try {
    if (mode !== undefined) fchmodSync(fd, mode);
    ftruncateSync(fd);
    writeFileSync(fd, text);
  } finally {
    closeSync(fd);
  }
}

export function openRegularFile(path: string, flags: number, mode?: number): number {
  // The opening of a FIFO would wait for a writer.
  const fd = openSync(path, flags | (constants.O_NONBLOCK ?? 0), mode);
  const found = fstatSync(fd);
  // The reading of a directory fails by itself.
  if (found.isFile() || found.isDirectory()) return fd;
  closeSync(fd);
  throw new Error(`it is ${found.isFIFO() ? "a FIFO" : found.isSocket() ? "a socket" : "a device"}, not a file`);
}

/** Why a file cannot be read: "no such file". */
export function whyUnreadable(error: unknown): string {
  const { code = "", message } = error as NodeJS.ErrnoException;
  return WHY.get(code) ?? missingPermission(error) ?? message;
}
const WHY = new Map([
  ["ENOENT", "no such file"],
  ["ENOTDIR", "no such file"],
  ["EACCES", "permission denied"],
  ["EPERM", "permission denied"],
  ["EISDIR", "it is a folder"],
  ["ENXIO", "it is a FIFO or a socket, not a file"],
]);

/** Whether a text that should be a path is a certificate, a key or a set of keys, which no message may quote. */
export function isContent(text: string): boolean {
  return text.includes("\n") || text.includes("-----BEGIN ") || text.trimStart().startsWith("{");
}
