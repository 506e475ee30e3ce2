import { describe, expect, it } from "vitest";
import { traceIdOf } from "../../lib/observe/traceparent.ts";

const TRACE = "0af7651916cd43dd8448eb211c80319c";
const VALID = `00-${TRACE}-b7ad6b7169203331-01`;

describe("traceIdOf", () => {
  it("gives the trace id, in whatever case the header's name is", () => {
    expect(traceIdOf(["Host", "h", "TraceParent", VALID])).toBe(TRACE);
  });

  it.each([`cc-${TRACE}-b7ad6b7169203331-01`, `cc-${TRACE}-b7ad6b7169203331-01-what-comes`])("takes %s, of a version to come", (value) => {
    expect(traceIdOf(["traceparent", value])).toBe(TRACE);
  });

  it.each([
    "",
    `${VALID}-more`,
    `${VALID}0`,
    VALID.toUpperCase(),
    VALID.replace("00-", "ff-"),
    `00-${"0".repeat(32)}-b7ad6b7169203331-01`,
    `00-${TRACE}-${"0".repeat(16)}-01`,
    ` ${VALID}`,
    `cc-${TRACE}-b7ad6b7169203331-01.x`,
  ])("takes %j for none", (value) => {
    expect(traceIdOf(["traceparent", value])).toBeNull();
  });

  it("takes two for none", () => {
    expect(traceIdOf(["traceparent", VALID, "traceparent", VALID])).toBeNull();
    expect(traceIdOf([])).toBeNull();
  });
});
