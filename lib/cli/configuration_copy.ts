/**
 * The copy of the configuration in force, in the folder of STATE_DIR, for a start while its source does not answer.
 */
import { createHash, hash } from "node:crypto";
import { messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import { readKept, type StateFolder } from "../base/state_folder.ts";
import { inSlices, paced } from "../base/time_slices.ts";
import type { SourceUrl } from "../config/source_url.ts";
import type { SourceText } from "../config/text_source.ts";
import { isObject } from "../json_schema/values.ts";
import type { TextCopy } from "../source/remote_source.ts";

const NAME = "configuration_copy";
const BYTES_OF_A_STEP = 500_000;
const LINE_FEED = 10;

/** The first line of the file; the text is behind it. */
interface Head {
  /** The name of the source. */
  readonly source: string;
  /** SHA-256 of its URL, whose query the name does not have: a copy of another one is not used. */
  readonly url_sha256: string;
  /** In milliseconds since 1970. */
  readonly kept_at: number;
  readonly signature: string | null;
  readonly revision: string | null;
}

/** See `SourceUrl`. */
type CopiedUrl = Pick<SourceUrl, "name" | "href">;

/** `problem`: why there is a copy that cannot be used; null: it can be, or there is none. */
export type CopyRead =
  { readonly copy: TextCopy; readonly problem: null } | { readonly copy: null; readonly problem: string | null };

/** `folder`: that of STATE_DIR, which another process may hold. */
export function readCopy(folder: string, { name, href }: CopiedUrl): CopyRead {
  const none = (problem: string | null) => ({ copy: null, problem });
  let content: Buffer | null;
  try {
    content = readKept(folder, NAME);
  } catch (error) {
    return none(messageOf(error));
  }
  if (content === null) return none(null);
  const end = content.indexOf(LINE_FEED);
  const head = headIn(content.subarray(0, Math.max(end, 0)));
  const text = content.subarray(end + 1);
  if (head === null || hash("sha256", Buffer.concat([Buffer.from(head.line), text])) !== head.sha256)
    return none(`${folder}/${NAME} is damaged, and is not used`);
  const { kept_at: keptAt, signature, revision } = head;
  if (head.source !== name) return none(`${folder}/${NAME} is a copy of ${head.source}, and is not used`);
  if (head.url_sha256 !== hash("sha256", href))
    return none(`${folder}/${NAME} is a copy of ${name} with another query, and is not used`);
  return { copy: { text, signature, revision, keptAt }, problem: null };
}

function headIn(line: Buffer): (Head & { readonly sha256: string; readonly line: string }) | null {
  try {
    const { sha256, ...head } = JSON.parse(line.toString()) as Head & { readonly sha256: string };
    const isSound = isObject(head) && typeof head.source === "string" && Number.isFinite(head.kept_at);
    return isSound && typeof sha256 === "string" ? { ...head, sha256, line: JSON.stringify(head) } : null;
  } catch {
    return null;
  }
}

/** Writes one copy after the other, for its owner alone. */
export class ConfigurationCopies {
  readonly #folder: StateFolder;
  readonly #url: CopiedUrl;
  readonly #log: Log;
  #written: Promise<void> = Promise.resolve();
  /** The last that was written, or is to be. */
  #text: Buffer | null = null;

  constructor(folder: StateFolder, url: CopiedUrl, log: Log) {
    this.#folder = folder;
    this.#url = url;
    this.#log = log;
  }

  /** Does nothing for a text that it has. `at`: in milliseconds since 1970. */
  keep(text: SourceText, at: number): Promise<void> {
    if (text.text === this.#text) return this.#written;
    this.#text = text.text;
    this.#written = this.#written
      .then(() => this.#write(text, at))
      .catch((error: unknown) => {
        this.#folder.failures++;
        const fields = { folder: this.#folder.path, error: messageOf(error) };
        this.#log.error("no copy of the configuration can be kept: a start needs its source", fields);
      });
    return this.#written;
  }

  async #write({ text, signature, revision }: SourceText, at: number): Promise<void> {
    const { name: source, href } = this.#url;
    const head: Head = { source, url_sha256: hash("sha256", href), kept_at: at, signature, revision };
    const sum = createHash("sha256").update(JSON.stringify(head));
    // Beside the traffic: 64 MiB take a tenth of a second.
    await inSlices(
      (function* () {
        for (let at = 0; at < text.length; at += BYTES_OF_A_STEP, yield)
          sum.update(text.subarray(at, at + BYTES_OF_A_STEP));
      })(),
      paced(),
    );
    const line = `${JSON.stringify({ ...head, sha256: sum.digest("hex") })}\n`;
    await this.#folder.write(NAME, [Buffer.from(line), text]);
  }
}
