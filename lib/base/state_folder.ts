/**
 * A folder for what a program keeps, held by one process at a time: files are replaced as a whole, and survive a crash.
 *
 * The process that holds the folder listens on a socket in it. The kernel ends that with the process, however it ends,
 * and answers for it in every container on the machine: unlike a file with a process id, it cannot be left behind. Node
 * has no locks of files.
 */
import { randomBytes } from "node:crypto";
import { accessSync, chmodSync, constants, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join, resolve } from "node:path";
import { messageOf } from "./errors.ts";
import { isListening } from "./egress_clients.ts";
import { readRegularFile, whyUnreadable } from "./regular_file.ts";
import { replaceFile } from "./replaced_file.ts";

/** A socket's path has at most 108 bytes on Linux, and 104 elsewhere. */
const MAX_PATH = 80;
const LOCK = "lock-";

/** Why a folder cannot be used, and what to do. */
export class StateProblem extends Error {
  /** Another process holds it. */
  isHeld = false;
}

export class StateFolder {
  readonly path: string;
  /** Writes that have failed: who writes counts them, once for each thing that is not kept. */
  failures = 0;
  readonly #lock: Server;

  private constructor(path: string, lock: Server) {
    this.path = path;
    this.#lock = lock;
  }

  /** Makes the folder, if there is none, and holds it. Rejects with a `StateProblem`. */
  static async open(given: string): Promise<StateFolder> {
    const path = resolve(given);
    if (Buffer.byteLength(path) > MAX_PATH)
      throw new StateProblem(
        `${path} has more than ${MAX_PATH} bytes, and a socket in it could not be opened: name a shorter path`,
      );
    try {
      mkdirSync(path, { recursive: true, mode: 0o700 });
    } catch (error) {
      throw new StateProblem(`${path} cannot be made: ${messageOf(error)}`);
    }
    if ((statSync(path).mode & 0o002) !== 0)
      throw new StateProblem(
        `every user of this machine may change the files in ${path}: take that permission away (chmod o-w)`,
      );
    return new StateFolder(path, await lock(path));
  }

  /** Null: there is none. Throws a `StateProblem`. */
  read(name: string): Buffer | null {
    return readKept(this.path, name);
  }

  /**
   * Replaces a file: after a crash it has the former content or this one. Rejects with the system's error, and the
   * former content stays.
   */
  write(name: string, content: readonly Buffer[]): Promise<void> {
    const path = join(this.path, name);
    return replaceFile(path, content, { beside: `${path}.new`, isOver: true });
  }

  /** A folder in it, which is made if there is none. Throws a `StateProblem` where it cannot be written. */
  inner(name: string): InnerFolder {
    const path = join(this.path, name);
    try {
      mkdirSync(path, { recursive: true, mode: 0o700 });
      // Whoever has copied it may have opened it for others.
      chmodSync(path, 0o700);
      accessSync(path, constants.W_OK | constants.X_OK);
    } catch (error) {
      throw new StateProblem(`${path} cannot be written: ${messageOf(error)}`);
    }
    return new InnerFolder(path);
  }

  /** Another process may hold the folder from now on. */
  close(): Promise<void> {
    return new Promise((done) => this.#lock.close(() => done()));
  }
}

/** A folder in one that this process holds; it and its files are for their owner alone. */
export class InnerFolder {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** Null: there is none. Throws a `StateProblem`. */
  read(name: string): Buffer | null {
    return readKept(this.path, name);
  }

  /** As `StateFolder.write`. */
  write(name: string, content: Buffer): Promise<void> {
    const path = join(this.path, name);
    return replaceFile(path, [content], { beside: `${path}.new`, isOver: true });
  }

  /** Whether it is there or not. Rejects with the system's error. */
  remove(name: string): Promise<void> {
    return rm(join(this.path, name), { force: true });
  }
}

/** A file of a folder that another process may hold. Null: there is none. Throws a `StateProblem`. */
export function readKept(folder: string, name: string): Buffer | null {
  const path = join(folder, name);
  try {
    return readRegularFile(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw new StateProblem(`${path} cannot be read: ${whyUnreadable(error)}`);
  }
}

/**
 * Listens on a socket of its own, and only then looks for others that listen: of two processes that do this at the same
 * time, at least the later one finds the other. Only the holder removes sockets that nobody listens on; a process whose
 * socket was removed before it listened finds that out, or the holder.
 */
async function lock(folder: string): Promise<Server> {
  const own = `${LOCK}${randomBytes(6).toString("hex")}`;
  const server = createServer((connection) => connection.destroy()).unref();
  try {
    await new Promise<void>((done, fail) => server.once("error", fail).listen(join(folder, own), done));
  } catch (error) {
    throw new StateProblem(`a socket in ${folder} cannot be opened, which marks it as used: ${messageOf(error)}`);
  }
  chmodSync(join(folder, own), 0o600);
  const others = readdirSync(folder).filter((name) => name.startsWith(LOCK) && name !== own);
  const alive = await Promise.all(others.map((name) => isListening(join(folder, name))));
  if (alive.includes(true) || !readdirSync(folder).includes(own)) {
    server.close();
    const problem = new StateProblem(
      `another process uses ${folder}: give each gateway a folder of its own, ` +
        `or let them count together with global.counters`,
    );
    throw Object.assign(problem, { isHeld: true });
  }
  for (const name of others) rmSync(join(folder, name), { force: true });
  return server;
}
