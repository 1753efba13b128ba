package dev.loupe.serve;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Tokens per second that 1, 2, 4 and 8 clients together get of a running server, in turns. It needs
 * nothing but the JDK: {@code java ServerSpeed.java http://127.0.0.1:8080 [TOKENS [ROUNDS]]}.
 */
final class ServerSpeed {
  private static final Pattern WRITTEN = Pattern.compile("\"completion_tokens\":(\\d+)");
  private static final int[] CLIENTS = {1, 2, 4, 8};

  private ServerSpeed() {}

  public static void main(String[] args) throws Exception {
    URI completions = URI.create(args[0]).resolve("/v1/completions");
    int tokens = args.length > 1 ? Integer.parseInt(args[1]) : 100;
    int rounds = args.length > 2 ? Integer.parseInt(args[2]) : 5;
    double[][] speeds = new double[CLIENTS.length][rounds];
    try (HttpClient client = HttpClient.newHttpClient();
        ExecutorService threads = Executors.newCachedThreadPool()) {
      for (int round = -1; round < rounds; round++) { // the first warms up
        for (int c = 0; c < CLIENTS.length; c++) {
          double speed = speed(completions, client, threads, CLIENTS[c], tokens);
          if (round >= 0) {
            speeds[c][round] = speed;
          }
        }
      }
    }
    System.out.println("clients  tokens/s  lowest  highest  times one");
    double one = 0;
    for (int c = 0; c < CLIENTS.length; c++) {
      Arrays.sort(speeds[c]);
      double median = speeds[c][rounds / 2];
      one = c == 0 ? median : one;
      System.out.printf(
          "%7d  %8.1f  %6.1f  %7.1f  %9.2f%n",
          CLIENTS[c], median, speeds[c][0], speeds[c][rounds - 1], median / one);
    }
  }

  private static double speed(
      URI completions, HttpClient client, ExecutorService threads, int clients, int tokens)
      throws Exception {
    List<Callable<Integer>> tasks = new ArrayList<>();
    for (int i = 0; i < clients; i++) {
      String body =
          "{\"prompt\": \"Once upon a time\", \"max_tokens\": %d, \"seed\": %d}"
              .formatted(tokens, i);
      HttpRequest request =
          HttpRequest.newBuilder(completions).POST(BodyPublishers.ofString(body)).build();
      tasks.add(
          () -> {
            HttpResponse<String> answer = client.send(request, BodyHandlers.ofString());
            Matcher written = WRITTEN.matcher(answer.body());
            if (!written.find()) {
              throw new IllegalStateException(answer.body());
            }
            return Integer.parseInt(written.group(1));
          });
    }
    long start = System.nanoTime();
    int all = 0;
    for (Future<Integer> written : threads.invokeAll(tasks)) {
      all += written.get();
    }
    return all * 1e9 / (System.nanoTime() - start);
  }
}
