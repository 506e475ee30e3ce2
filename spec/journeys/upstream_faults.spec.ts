import { describe } from "vitest";
import { upstreamFaults } from "../contracts/upstream_faults.ts";

describe.each(["wire", "node"] as const)("by the client %s:", upstreamFaults);
