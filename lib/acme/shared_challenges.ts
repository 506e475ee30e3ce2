/**
 * The open challenges of a fleet: a directory may look at any gateway, so that all answer those of the one that orders.
 */
import type { Challenge, ChallengeAnswers } from "./contracts.ts";
import { isJsonObject, objectsIn, textIn, type JsonObject } from "./json_members.ts";

export function challengesText(challenges: readonly Challenge[]): Buffer {
  const shown = challenges.map((each) =>
    each.type === "http-01" ? each : { ...each, pair: { cert: String(each.pair.cert), key: String(each.pair.key) } },
  );
  return Buffer.from(JSON.stringify({ challenges: shown }));
}

/** What is not of the form is left out. */
export function challengesIn(text: Buffer | null): readonly Challenge[] {
  try {
    const value: unknown = JSON.parse(String(text ?? "{}"));
    return isJsonObject(value) ? objectsIn(value, "challenges").flatMap((each) => challengeIn(each) ?? []) : [];
  } catch {
    return [];
  }
}

function challengeIn(value: JsonObject): Challenge | null {
  const member = (name: string, of: JsonObject = value) => textIn(of, name) ?? "";
  const [type, host] = [member("type"), member("host")];
  if (type === "http-01") return { type, host, token: member("token"), keyAuthorization: member("keyAuthorization") };
  const { pair } = value;
  if (type !== "tls-alpn-01" || !isJsonObject(pair)) return null;
  const [cert, key] = [Buffer.from(member("cert", pair)), Buffer.from(member("key", pair))];
  return { type, host, servername: member("servername"), pair: { cert, key } };
}

/** The challenges of the fleet that the threads of this gateway answer. */
export class AnsweredChallenges {
  readonly #answers: ChallengeAnswers;
  #open: ReadonlyMap<string, Challenge> = new Map();

  constructor(answers: ChallengeAnswers) {
    this.#answers = answers;
  }

  /** Resolves once every thread answers these, and no others. */
  async set(challenges: readonly Challenge[]): Promise<void> {
    const former = this.#open;
    const next = new Map(challenges.map((each) => [String(challengesText([each])), each]));
    this.#open = next;
    const over = [...former].filter(([text]) => !next.has(text)).map(([, each]) => each);
    const fresh = [...next].filter(([text]) => !former.has(text)).map(([, each]) => each);
    if (over.length > 0) await this.#answers.remove(over);
    if (fresh.length > 0) await this.#answers.present(fresh);
  }
}
