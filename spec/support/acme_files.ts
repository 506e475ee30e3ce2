import type { AcmeFiles } from "../../lib/acme/contracts.ts";

export interface MemoryFiles extends AcmeFiles {
  readonly content: Map<string, Buffer>;
  /** What was written and removed, in order: "write account.key", "remove order.json". */
  readonly changes: string[];
}

/** The files of a keeper, in memory. `refuse`: throws for what cannot be done. */
export function memoryFiles(refuse: (change: string) => void = () => {}): MemoryFiles {
  const content = new Map<string, Buffer>();
  const changes: string[] = [];
  const change = (what: string, name: string) => {
    refuse(`${what} ${name}`);
    changes.push(`${what} ${name}`);
  };
  return {
    content,
    changes,
    read(name) {
      refuse(`read ${name}`);
      return content.get(name) ?? null;
    },
    async write(name, bytes) {
      change("write", name);
      content.set(name, bytes);
    },
    async remove(name) {
      if (content.has(name)) change("remove", name);
      content.delete(name);
    },
  };
}
