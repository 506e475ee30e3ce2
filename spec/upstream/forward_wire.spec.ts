import { describe } from "vitest";
import { forwarding } from "../contracts/forwarding.ts";

describe("forward, the gateway's own way,", () => forwarding("wire"));
