/** The issues of a refused configuration, as commands and the log print them. */
export { linesOf as issueLines } from "../../lib/gateway/refusal.ts";
