package dev.loupe.serve.http;

import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.socket.SocketChannel;
import io.netty.util.concurrent.ScheduledFuture;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * Who may connect: so many clients, and of one address not all of these. Where there is no room, a
 * connection that nobody uses makes way for a new one: first those that have sent nothing, then
 * those whose last answer is long ago, then those that have sent a part of a request; among equals
 * one of the address that has most, and of its connections the oldest. It is closed a moment later,
 * unless something arrives on it by then: a request may be on its way. On the thread of the
 * network.
 */
public final class Connections {
  private record Open(Channel channel, Connection connection, @Nullable InetAddress address) {}

  /** Milliseconds in which a request may still arrive on a connection that is to be closed. */
  private static final int MOMENT = 100;

  /**
   * Connections that are to be closed in a moment, so many at most: the others are closed at once.
   */
  private static final int MOST_LEAVING = 64;

  private final int most;
  private final int mostOfAddress;
  private final Map<Channel, Open> open = new LinkedHashMap<>(); // in order of arrival
  private int leaving;

  /**
   * @param most at a time
   * @param mostOfAddress of one address, at a time
   */
  public Connections(int most, int mostOfAddress) {
    this.most = most;
    this.mostOfAddress = mostOfAddress;
  }

  /** Takes a new connection in, unless there is no room and none can be made. */
  public boolean admit(SocketChannel channel, Connection connection) {
    InetSocketAddress from = channel.remoteAddress(); // null of one that has gone already
    return admit(channel, connection, from == null ? null : from.getAddress());
  }

  boolean admit(Channel channel, Connection connection, @Nullable InetAddress address) {
    Predicate<Open> sameAddress = other -> address != null && address.equals(other.address);
    if (open.values().stream().filter(sameAddress).count() >= mostOfAddress
        && !makeRoom(sameAddress)) {
      return false;
    }
    if (open.size() >= most && !makeRoom(_ -> true)) {
      return false;
    }
    open.put(channel, new Open(channel, connection, address));
    channel.closeFuture().addListener(_ -> open.remove(channel));
    return true;
  }

  private boolean makeRoom(Predicate<Open> among) {
    Map<Optional<InetAddress>, Integer> ofAddress = new HashMap<>();
    List<Open> idle = new ArrayList<>();
    for (Open each : open.values()) {
      ofAddress.merge(Optional.ofNullable(each.address), 1, Integer::sum);
      if (among.test(each) && each.connection.isIdle()) {
        idle.add(each);
      }
    }
    Optional<Open> loser =
        idle.stream()
            .min( // the first among equals, which is the oldest
                Comparator.<Open, Boolean>comparing(each -> each.connection.hasBegun())
                    .thenComparingLong(each -> each.connection.lastAnswer())
                    .thenComparingInt(
                        each -> -ofAddress.getOrDefault(Optional.ofNullable(each.address), 0)));
    loser.ifPresent(this::close);
    return loser.isPresent();
  }

  private void close(Open loser) {
    open.remove(loser.channel);
    if (leaving == MOST_LEAVING) {
      ChannelFuture _ = loser.channel.close();
      return;
    }
    leaving++;
    long arrivals = loser.connection.arrivals();
    ScheduledFuture<?> _ =
        loser
            .channel
            .eventLoop()
            .schedule(
                () -> {
                  leaving--;
                  if (loser.connection.arrivals() == arrivals) {
                    ChannelFuture _ = loser.channel.close();
                  } else if (loser.channel.isOpen()) {
                    open.put(loser.channel, loser);
                  }
                },
                MOMENT,
                TimeUnit.MILLISECONDS);
  }
}
