/**
 * Replaces files as a whole: after a crash a file has its former content or the new one.
 */
import { renameSync } from "node:fs";
import { open, rm, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";
import { ignore } from "./errors.ts";

interface Replacing {
  /** In the same folder; written first, and gone after an error. */
  readonly beside: string;
  /** Whether `beside` may be there, as the rest of a crash. */
  readonly isOver?: boolean;
  /** Called before the content of `beside` is on the disk. */
  readonly prepare?: (file: FileHandle) => Promise<void>;
  /** Called just before the renaming: no task of this program runs between them. What it throws stops it. */
  readonly check?: () => void;
}

/**
 * Readable for its owner alone. Rejects with the system's error, or with that of `prepare` or `check`, and the former
 * content stays.
 */
export async function replaceFile(
  path: string,
  content: readonly Buffer[],
  { beside, isOver = false, prepare, check }: Replacing,
): Promise<void> {
  try {
    const file = await open(beside, isOver ? "w" : "wx", 0o600);
    try {
      // `write` may take a part only, without an error, where the disk is almost full.
      for (const part of content) await file.writeFile(part);
      await prepare?.(file);
      await file.sync();
    } finally {
      await file.close();
    }
    check?.();
    renameSync(beside, path);
  } catch (error) {
    await rm(beside, { force: true }).catch(ignore);
    throw error;
  }
  // The new content is there for all programs: without this it may be the former one after a crash of the system.
  const folder = await open(dirname(path)).catch(() => null);
  await folder?.sync().catch(ignore);
  await folder?.close();
}
