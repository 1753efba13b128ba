package dev.loupe.text;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** OpenAI's src/encoder.py in textbook order; shares nothing with the tokenizer but the files. */
final class ReferenceBpe {
  private static final Pattern WORDS =
      Pattern.compile(
          "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
          Pattern.UNICODE_CHARACTER_CLASS);

  private final JsonObject vocab;
  private final Map<String, Integer> ranks = new HashMap<>();

  ReferenceBpe(Path folder) throws IOException {
    vocab = TestData.json(folder.resolve("vocab.json")).getAsJsonObject();
    List<String> lines = Files.readAllLines(folder.resolve("merges.txt"));
    for (String merge : lines.subList(1, lines.size())) {
      ranks.put(merge, ranks.size());
    }
  }

  int[] encode(String text) {
    List<Integer> ids = new ArrayList<>();
    for (Matcher word = WORDS.matcher(text); word.find(); ) {
      for (String token : merge(word.group())) {
        ids.add(vocab.get(token).getAsInt());
      }
    }
    return ids.stream().mapToInt(id -> id).toArray();
  }

  private List<String> merge(String word) {
    List<String> parts = new ArrayList<>();
    for (byte b : word.getBytes(UTF_8)) {
      parts.add(symbol(b & 0xFF));
    }
    while (true) {
      int best = -1;
      int bestRank = Integer.MAX_VALUE;
      for (int i = 0; i + 1 < parts.size(); i++) {
        int rank = ranks.getOrDefault(parts.get(i) + " " + parts.get(i + 1), Integer.MAX_VALUE);
        if (rank < bestRank) {
          best = i;
          bestRank = rank;
        }
      }
      if (best < 0) {
        return parts;
      }
      // one pair at a time, the leftmost of the best rank: the same as encoder.py's all at once
      parts.set(best, parts.get(best) + parts.remove(best + 1));
    }
  }

  private static String symbol(int b) {
    List<Integer> printable = new ArrayList<>();
    for (int c = '!'; c <= '~'; c++) {
      printable.add(c);
    }
    for (int c = '¡'; c <= '¬'; c++) {
      printable.add(c);
    }
    for (int c = '®'; c <= 'ÿ'; c++) {
      printable.add(c);
    }
    if (printable.contains(b)) {
      return Character.toString(b);
    }
    int n = 0;
    for (int c = 0; c < b; c++) {
      n += printable.contains(c) ? 0 : 1;
    }
    return Character.toString(256 + n);
  }
}
