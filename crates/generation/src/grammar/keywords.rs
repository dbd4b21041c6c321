//! The keywords of JSON schemas: which are followed, which only annotate, and which are refused.

/// What a keyword says, which also tells what its value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    /// A schema.
    Schema,
    /// A schema, or before 2020-12 a list of them.
    SchemaOrList,
    /// A list of schemas.
    Schemas,
    /// Schemas by name.
    SchemasByName,
    /// Schemas by pattern.
    SchemasByPattern,
    /// A schema of the names of properties.
    NamesOf,
    /// A schema of what no other keyword speaks about.
    Unevaluated,
    /// A schema that nothing may match.
    Not,
    /// A number.
    Number,
    /// A number above 0.
    Divisor,
    /// A number, or before draft 6 whether the bound itself is out.
    Bound,
    /// A whole number from 0.
    Count,
    /// A regular expression.
    Pattern,
    /// The name of a format.
    Format,
    /// The name of a type, or a list of them.
    Type,
    /// The names of properties.
    Names,
    /// Values to choose from.
    Values,
    /// A value.
    Value,
    /// A place in the same schema.
    Reference,
    /// Whether items must differ, which cannot be followed where they must.
    Unique,
    /// `true` where null is possible too, as in `OpenAPI` 3.0.
    Nullable,
    /// The address of the schema.
    Id,
    /// It has no effect.
    Annotation,
    /// It cannot be followed.
    Refused,
}

use Keyword as K;

/// All keywords of JSON Schema's drafts and of `OpenAPI`. Others annotate.
pub(super) const KEYWORDS: [(&str, Keyword); 68] = [
    ("$anchor", K::Annotation),
    ("$comment", K::Annotation),
    ("$defs", K::Annotation),
    ("$dynamicAnchor", K::Annotation),
    ("$dynamicRef", K::Refused),
    ("$id", K::Id),
    ("$recursiveAnchor", K::Annotation),
    ("$recursiveRef", K::Refused),
    ("$ref", K::Reference),
    ("$schema", K::Annotation),
    ("$vocabulary", K::Annotation),
    ("additionalItems", K::Schema),
    ("additionalProperties", K::Schema),
    ("allOf", K::Schemas),
    ("anyOf", K::Schemas),
    ("const", K::Value),
    ("contains", K::Refused),
    ("contentEncoding", K::Annotation),
    ("contentMediaType", K::Annotation),
    ("contentSchema", K::Annotation),
    ("default", K::Annotation),
    ("definitions", K::Annotation),
    ("dependencies", K::Refused),
    ("dependentRequired", K::Refused),
    ("dependentSchemas", K::Refused),
    ("deprecated", K::Annotation),
    ("description", K::Annotation),
    ("discriminator", K::Annotation),
    ("else", K::Refused),
    ("enum", K::Values),
    ("example", K::Annotation),
    ("examples", K::Annotation),
    ("exclusiveMaximum", K::Bound),
    ("exclusiveMinimum", K::Bound),
    ("externalDocs", K::Annotation),
    ("format", K::Format),
    ("id", K::Annotation),
    ("if", K::Refused),
    ("items", K::SchemaOrList),
    ("maxContains", K::Refused),
    ("maxItems", K::Count),
    ("maxLength", K::Count),
    ("maxProperties", K::Count),
    ("maximum", K::Number),
    ("minContains", K::Refused),
    ("minItems", K::Count),
    ("minLength", K::Count),
    ("minProperties", K::Count),
    ("minimum", K::Number),
    ("multipleOf", K::Divisor),
    ("not", K::Not),
    ("nullable", K::Nullable),
    ("oneOf", K::Schemas),
    ("pattern", K::Pattern),
    ("patternProperties", K::SchemasByPattern),
    ("prefixItems", K::Schemas),
    ("properties", K::SchemasByName),
    ("propertyNames", K::NamesOf),
    ("readOnly", K::Annotation),
    ("required", K::Names),
    ("then", K::Refused),
    ("title", K::Annotation),
    ("type", K::Type),
    ("unevaluatedItems", K::Unevaluated),
    ("unevaluatedProperties", K::Unevaluated),
    ("uniqueItems", K::Unique),
    ("writeOnly", K::Annotation),
    ("xml", K::Annotation),
];

/// A keyword of a name; unknown ones annotate.
pub(super) fn keyword(name: &str) -> Keyword {
    KEYWORDS.iter().find(|(known, _)| *known == name).map_or(Keyword::Annotation, |(_, keyword)| *keyword)
}
