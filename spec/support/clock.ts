export { manualClock, type ManualClock } from "../../lib/base/manual_clock.ts";
