package dev.loupe.hub;

import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A model's name on a hub, {@code openai-community/gpt2}, with a revision after an @ if it isn't
 * the main one: {@code openai-community/gpt2@607a30d}.
 *
 * @param repository {@code owner/model}, or {@code model} alone as some old ones are called
 * @param revision a branch, tag or commit
 */
public record ModelName(String repository, String revision) {
  private static final String MAIN = "main";
  private static final String WORD = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}";
  private static final Pattern REPOSITORY = Pattern.compile(WORD + "(/" + WORD + ")?");
  private static final Pattern REVISION = Pattern.compile(WORD + "(/" + WORD + "){0,5}");
  private static final Pattern NAME = Pattern.compile("([^@]+)(@(.+))?");

  public ModelName {
    // "--" stands for the slash in the names of cache folders
    if (!REPOSITORY.matcher(repository).matches() || repository.matches(".*(--|\\.\\.).*")) {
      throw new IllegalArgumentException(
          "\"%s\" is no model's name; they look like openai-community/gpt2".formatted(repository));
    }
    if (!REVISION.matcher(revision).matches() || revision.contains("..")) {
      throw new IllegalArgumentException(
          "\"%s\" is no revision: give a branch, tag or commit".formatted(revision));
    }
  }

  /**
   * Reads {@code owner/model} or {@code owner/model@revision}.
   *
   * @throws IllegalArgumentException if it can't be a name
   */
  public static ModelName of(String text) {
    Matcher parts = NAME.matcher(text);
    if (!parts.matches()) {
      throw new IllegalArgumentException(
          "\"%s\" is no model's name; they look like openai-community/gpt2".formatted(text));
    }
    String revision = parts.group(3);
    return new ModelName(parts.group(1), revision == null ? MAIN : revision);
  }

  /** Likewise; empty if it can't be a name. */
  public static Optional<ModelName> find(String text) {
    try {
      return Optional.of(of(text));
    } catch (IllegalArgumentException e) {
      return Optional.empty();
    }
  }

  @Override
  public String toString() {
    return revision.equals(MAIN) ? repository : repository + "@" + revision;
  }
}
