import { describe } from "vitest";
import { forward } from "../../lib/upstream/forward.ts";
import { forwarding } from "../contracts/forwarding.ts";

describe("forward, over node:http,", () => forwarding(forward));
