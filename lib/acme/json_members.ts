/**
 * Reads members of JSON that came from outside: whatever does not have the expected type is not there.
 */

export type JsonObject = Readonly<Record<string, unknown>>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function textIn(object: JsonObject, name: string): string | null {
  const value = Object.hasOwn(object, name) ? object[name] : null;
  return typeof value === "string" ? value : null;
}

/** The objects in a list; none where there is no list. */
export function objectsIn(object: JsonObject, name: string): readonly JsonObject[] {
  return listIn(object, name).filter(isJsonObject);
}

/** The texts in a list; none where there is no list. */
export function textsIn(object: JsonObject, name: string): readonly string[] {
  return listIn(object, name).filter((each) => typeof each === "string");
}

function listIn(object: JsonObject, name: string): readonly unknown[] {
  const value = Object.hasOwn(object, name) ? object[name] : null;
  return Array.isArray(value) ? value : [];
}
