package dev.loupe.text.files;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Brings the added tokens that the settings beside a tokenizer name into it: each gets the id of
 * its spelling there, or that of a file, or the next one.
 */
final class NamedTokens {
  private final TokenizerJson json;
  private final Findings findings;
  private final Map<String, AddedToken> byContent = new LinkedHashMap<>();
  private int next = -1; // the first id that no token has, once it is asked for

  private NamedTokens(TokenizerJson json, Findings findings) {
    this.json = json;
    this.findings = findings;
  }

  /**
   * Adds them: tokens with ids first, then special ones by their spelling.
   *
   * @param defaults special tokens unless the settings name others, by their roles; those that the
   *     vocabulary lacks are left out
   */
  static void addTo(TokenizerJson json, Map<String, String> defaults, Findings findings) {
    new NamedTokens(json, findings).add(defaults);
  }

  private void add(Map<String, String> defaults) {
    TokenizerSettings settings = findings.settings();
    json.added().forEach(token -> byContent.put(token.content(), token));
    int given = settings.added().size();
    for (AddedToken token : settings.added().values()) {
      AddedToken before = byContent.get(token.content());
      Integer id = json.vocab().get(token.content());
      int own = before != null ? before.id() : id != null ? id : token.id();
      if (own != token.id()) {
        findings.note(
            "token \"%s\" has the id %d, not %d as %s says"
                .formatted(token.content(), own, token.id(), settings.addedFile()));
      }
      byContent.put(token.content(), token.withId(own));
    }
    if (given > 0) {
      findings.inForce("added tokens", "%d, in %s".formatted(given, settings.addedFile()));
    }
    for (TokenizerSettings.Named named : settings.named()) {
      name(named.token(), named.role());
      findings.inForce(
          named.role().endsWith("_token") ? named.role() : "special " + named.token().content(),
          "%s, in %s".formatted(named.token().content(), named.file()));
    }
    defaults.forEach(
        (role, content) -> {
          String key = role + "_token";
          boolean known = json.vocab().containsKey(content); // no other text means the same
          if (known && content.equals(settings.token(key, content))) {
            name(AddedToken.plain(content, -1, true), key);
          }
        });
    List<AddedToken> added = json.added();
    added.clear();
    byContent.values().forEach(added::add);
    noteGap();
  }

  private void name(AddedToken token, String role) {
    AddedToken before = byContent.get(token.content());
    Integer id = json.vocab().get(token.content());
    if (before != null) {
      if (!before.special()) {
        byContent.put(token.content(), token.withId(before.id()));
      }
    } else if (id != null) {
      byContent.put(token.content(), token.withId(id));
    } else {
      if (next < 0) { // once, and not for each token: there may be many
        next = nextId();
      }
      if (next < findings.rows()) {
        byContent.put(token.content(), token.withId(next++));
        findings.note(
            "%s \"%s\" has no id in any file: it gets %d, the next one, as in transformers"
                .formatted(role, token.content(), next - 1));
      }
    }
  }

  private int nextId() {
    int most = json.modelSize() - 1;
    for (AddedToken token : byContent.values()) {
      most = Math.max(most, token.id());
    }
    return most + 1;
  }

  /** transformers numbers added tokens from the count of the vocabulary on, whatever is written. */
  private void noteGap() {
    int expected = json.vocab().size();
    if (expected != json.modelSize()) {
      return;
    }
    for (AddedToken token : json.added()) {
      if (!json.vocab().containsKey(token.content())) {
        if (token.id() != expected) {
          findings.note(
              ("added token \"%s\" has the id %d, as the model's files say; transformers 5 leaves no"
                      + " gap and gives it %d")
                  .formatted(token.content(), token.id(), expected));
          return;
        }
        expected++;
      }
    }
  }
}
