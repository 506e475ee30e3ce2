/**
 * The patterns in the `config` of the plugin kind `mcp`. One that would allow nothing, or that means something else in
 * other programs, is an error: a list that silently allows more or less than it says is found by nobody.
 */
import { string } from "../../config/whole_schema.ts";
import { hasMethodLookalike } from "./revisions.ts";
import { hasDotSegment } from "./targets.ts";

/** Of tools and prompts. */
export const NAME_PATTERN = patternOf(() => undefined);

export const URI_PATTERN = patternOf((text) =>
  hasDotSegment(text) ? 'URIs with "." or ".." between slashes are refused: write the path without' : undefined,
);

export const METHOD_PATTERN = patternOf((text) =>
  hasMethodLookalike(text) ? 'methods are written as in "tools/call", with the same case' : undefined,
);

/** `problemOf`: what is wrong with a pattern of the kind; undefined: nothing. */
function patternOf(problemOf: (text: string) => string | undefined) {
  return string({
    min: 1,
    max: 2048,
    references: "none",
    hint: 'a name or a pattern with "*"',
    check(text) {
      if (text.startsWith("!")) return 'lists only allow, and "!" takes nothing away: leave out what is not allowed';
      if (/^\s|\s$/.test(text)) return "remove the space at its end or beginning";
      if (/[\0-\x1f\x7f]/.test(text)) return "names with control characters are refused";
      return problemOf(text);
    },
  });
}
