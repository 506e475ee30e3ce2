/** Starts the built gateway with several workers on a Node release that can, and ends it with the test. */
import { runningProgram, type RunningProgram } from "../support/process.ts";
import { CREDENTIALS } from "./built.ts";
import { nodeOf, type Release } from "./nodes.ts";

export interface Workers extends RunningProgram {
  readonly adminUrl: string;
  /** Asks the admin interface, with a session of its own; resolves with the body as text. */
  admin(path: string, method?: string): Promise<string>;
}

export interface WorkersOptions {
  /** Default 24. */
  readonly release?: Release;
  /** Default 2. */
  readonly workers?: number;
  /** Further arguments of the program. */
  readonly words?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

/** Resolves when the program has logged its start: all workers listen. Its log is JSON, on `stderr()`. */
export async function withWorkers(config: unknown, { release = 24, workers = 2, words = [], environment = {} }: WorkersOptions = {}): Promise<Workers> {
  const settings = { ADMIN_USER: CREDENTIALS.user, ADMIN_PASSWORD: CREDENTIALS.password, ...environment };
  const running = await runningProgram(config, ["--workers", String(workers), ...words], settings, nodeOf(release));
  const adminUrl = running.started.admin as string;
  let cookie: Promise<string> | null = null;
  return {
    ...running,
    adminUrl,
    async admin(path, method = "GET") {
      cookie ??= login(adminUrl);
      const answer = await fetch(adminUrl + path, { method, headers: { cookie: await cookie } });
      return answer.text();
    },
  };
}

async function login(adminUrl: string): Promise<string> {
  const authorization = `Basic ${Buffer.from(`${CREDENTIALS.user}:${CREDENTIALS.password}`).toString("base64")}`;
  const answer = await fetch(`${adminUrl}/login`, { method: "POST", headers: { authorization } });
  if (answer.status !== 200) throw new Error(`the login was answered with ${answer.status}`);
  return answer.headers.getSetCookie()[0]!.split(";", 1)[0]!;
}
