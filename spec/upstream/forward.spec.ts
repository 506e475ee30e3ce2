import { describe } from "vitest";
import { forwarding } from "../contracts/forwarding.ts";

describe("forward, over node:http,", () => forwarding("node"));
