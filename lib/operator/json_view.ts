/**
 * The types of the JSON of the admin interface: those of the program with names in snake_case, and times as in RFC
 * 3339.
 */
export type View<T> = T extends readonly (infer Item)[]
  ? readonly View<Item>[]
  : T extends object
    ? { readonly [Name in keyof T as SnakeCase<Name>]: ViewOf<Name, T[Name]> }
    : T;
type ViewOf<Name, T> = Name extends Time ? (T extends null ? null : string) : View<T>;
type SnakeCase<Name> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Lowercase<First> ? First : `_${Lowercase<First>}`}${SnakeCase<Rest>}`
  : Name;

/** Members that are times. */
export type Time = "at" | "since" | "until" | "adminSince" | "loadedAt" | "notAfter" | "nextAt" | "keptAt";
