/**
 * The files of a keeper whose account and certificates are those of a fleet: they are in etcd, and what a gateway needs
 * to serve without etcd is copied to its own files.
 */
import type { AcmeFiles } from "./contracts.ts";

/** What a fleet has, by the names of files. */
export const SHARED_NAMES = ["account.key", "account-next.key", "order.json", "certificates.pem", "attempt.json"];
/** A start while etcd is away serves with them, and an etcd that has lost them gets them back. */
const COPIED: ReadonlySet<string> = new Set(["account.key", "certificates.pem"]);

interface Sharing {
  /** Writes to the fleet; null removes. Rejects where this gateway may not, or cannot. */
  readonly share: (name: string, content: Buffer | null) => Promise<void>;
  /** Called where a copy cannot be written. */
  readonly uncopied: (name: string, error: unknown) => void;
}

export class SharedFiles implements AcmeFiles {
  readonly #own: AcmeFiles;
  readonly #sharing: Sharing;
  /** Null: it is not known what the fleet has. */
  #shared: Map<string, Buffer> | null = null;

  constructor(own: AcmeFiles, sharing: Sharing) {
    this.#own = own;
    this.#sharing = sharing;
  }

  /** Of the fleet, or the copy where that has none. */
  read(name: string): Buffer | null {
    const shared = this.#shared?.get(name);
    if (shared !== undefined) return shared;
    return this.#shared === null || COPIED.has(name) ? this.#own.read(name) : null;
  }

  async write(name: string, content: Buffer): Promise<void> {
    await this.#sharing.share(name, content);
    this.#shared?.set(name, content);
    await this.#copy(name, content);
  }

  async remove(name: string): Promise<void> {
    if (this.#shared?.has(name) !== false) await this.#sharing.share(name, null);
    this.#shared?.delete(name);
    if (!COPIED.has(name)) await this.#own.remove(name);
  }

  /** What the fleet has from now on. */
  async take(shared: ReadonlyMap<string, Buffer>): Promise<void> {
    this.#shared = new Map(shared);
    for (const [name, content] of shared) await this.#copy(name, content);
  }

  /** Brings what the fleet lacks, and a gateway has that ordered for itself before, or was there before a loss. */
  async bring(): Promise<readonly string[]> {
    const brought: string[] = [];
    for (const name of SHARED_NAMES) {
      const content = this.#shared?.has(name) === true ? null : this.#own.read(name);
      if (content === null) continue;
      await this.#sharing.share(name, content);
      this.#shared?.set(name, content);
      if (!COPIED.has(name)) await this.#own.remove(name);
      brought.push(name);
    }
    return brought;
  }

  /** Never rejects: the fleet has it. */
  async #copy(name: string, content: Buffer): Promise<void> {
    if (!COPIED.has(name)) return;
    try {
      if (this.#own.read(name)?.equals(content) !== true) await this.#own.write(name, content);
    } catch (error) {
      this.#sharing.uncopied(name, error);
    }
  }
}
