/**
 * The files of a keeper whose account and certificates are those of a fleet: they are in etcd, and what a gateway needs
 * to serve without etcd is copied to its own files.
 */
import type { AcmeFiles } from "./contracts.ts";
import { CERTIFICATES, withNewer } from "./stored_certificates.ts";

/** What a fleet has, by the names of files. */
export const SHARED_NAMES = ["account.key", "account-next.key", "order.json", CERTIFICATES, "attempt.json"];
/** A start while etcd is away serves with them, and an etcd that has lost them gets them back. */
const COPIED: ReadonlySet<string> = new Set(["account.key", CERTIFICATES]);

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
  /** Names of which this gateway has something newer than the fleet. */
  readonly #newer = new Set<string>();
  /** How many changes are on their way to the fleet. */
  #changes = 0;

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

  /** Whether it is not certain what the fleet has at present. */
  get isChanging(): boolean {
    return this.#changes > 0;
  }

  async write(name: string, content: Buffer): Promise<void> {
    await this.#share(name, content);
    await this.#copy(name, content);
  }

  async remove(name: string): Promise<void> {
    if (this.#shared?.has(name) !== false) await this.#share(name, null);
    if (!COPIED.has(name)) await this.#own.remove(name);
  }

  /**
   * What the fleet has from now on. A newer certificate of this gateway stays in use: etcd may have been restored from
   * a backup, or somebody may have put back a former value.
   */
  async take(shared: ReadonlyMap<string, Buffer>): Promise<void> {
    this.#shared = new Map(shared);
    this.#newer.clear();
    for (const [name, content] of shared) {
      const newest = name === CERTIFICATES ? this.#newest(content) : content;
      if (newest !== content) this.#newer.add(name);
      this.#shared.set(name, newest);
      await this.#copy(name, newest);
    }
  }

  #newest(shared: Buffer): Buffer {
    try {
      const own = this.#own.read(CERTIFICATES);
      return own === null ? shared : withNewer(shared, own);
    } catch {
      // The copy that follows says why.
      return shared;
    }
  }

  /** Brings what the fleet lacks, and a gateway has that ordered for itself before, or was there before a loss. */
  async bring(): Promise<readonly string[]> {
    const brought: string[] = [];
    for (const name of SHARED_NAMES) {
      const isKnown = this.#shared?.has(name) === true && !this.#newer.has(name);
      const content = isKnown ? null : (this.read(name) ?? this.#own.read(name));
      if (content === null) continue;
      await this.#share(name, content);
      if (!COPIED.has(name)) await this.#own.remove(name);
      brought.push(name);
    }
    return brought;
  }

  /** `found`: in etcd. Puts back what is different from what this gateway has written. Resolves with the names. */
  async restore(found: ReadonlyMap<string, Buffer>): Promise<readonly string[]> {
    const restored: string[] = [];
    for (const name of SHARED_NAMES) {
      const written = this.#shared?.get(name);
      const isSame = written === undefined ? !found.has(name) : found.get(name)?.equals(written) === true;
      if (isSame) continue;
      await this.#share(name, written ?? null);
      restored.push(name);
    }
    return restored;
  }

  async #share(name: string, content: Buffer | null): Promise<void> {
    this.#changes++;
    try {
      await this.#sharing.share(name, content);
      if (content === null) this.#shared?.delete(name);
      else this.#shared?.set(name, content);
      this.#newer.delete(name);
    } finally {
      this.#changes--;
    }
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
