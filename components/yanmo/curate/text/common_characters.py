"""The commonest Chinese characters, by which text that was decoded rightly is told from text that was not.

Bytes read in a wrong encoding still give characters, but rare ones. Of the Han characters of the bundled
corpus and of vernacular plays, 83 in 100 are in this list (in every text of 20 Han characters or more, at
least 32 in 100); of text in GB18030 read as Big5, UTF-8 read as GBK and so on, at most 20 in 100. The list is
the union of five lists of 1,000 characters: the bundled corpus as it is, simplified and traditional, and
jieba's dictionary (by word frequency), simplified and traditional."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

COMMON = frozenset(
    "一丁七万丈三上下不与专且世丘业东丝两严並个中丰临丹为主举乃久么义之乌乎乐乘九也习乡书买乱乾亂了予争事二于"
    "云互五井亚些亞亡交亦产京亭亮亲人亿什仁仅今介仍从他付仙代令以仪们仰件价任份企伊伏休众优会传伤伯伴似但位低"
    "住体佔何余佛作你佳使來例侍供依侧侯侵便俄俗保信修俱個們倒候倚借值倾假偏做停側偶傍備傳傷傾僅像僧價儀億儒優"
    "儿元兄充先光克免兒党入內全兩八公六兮兰共关兴兵其具典兹养兼内再写军农冠冥冬冰冲决况冷凄准凉减凝几凡凤凭出"
    "击刀分切刑划列刘则刚创初判別利别到制刺刻則前剑剛剧副創劃劇劉劍力办功加务动助劳势動務勝勞勢勤勿包化北区医"
    "區十千升半华协卒協单卖南博占卧卫印危即却卷卻卿厂历压厌厚原厭去县参參又及友双反发取受变口古句另只叫召可台"
    "史右叶号司叹吃各合同名后吏向吗君吟否吧含听吳吴吸吹吾告员呢周味呼命和咱咸哀品哈哉响員哥哪唐唯商啊問啼善喜"
    "喝喫單嗎嗟嘆嘉嘗器嚴四回因团园围固国图圆國圍園圓圖團土圣在地场均坐块坚垂型城域執基堂堅堪報場塊塞塵境墙增"
    "墨壁壓士壮壯声壽处备复夏夕外多夜够夠夢大天太夫央失头夷奇奉奏奔女她好如妇妈妙始姑姓委威娘婦媽子孔字存孙孝"
    "季孤学孩孫學宁它宇守安宋完宗官定宜宝实审客宣室宫宮害家容宾宿寂寄密富寒察實寧審寫寶寸对寺寻导寿封射将將專"
    "尊尋對導小少尔尘尚尝就尺尼尽局层居屆届屋屏展属層屬山岁岂岛岩岭岸峯峰島崇嶺巖川州工左差己已巴市布师希帘帝"
    "带師席帮帶常幫干平年并幸幹幽幾广庆床序庐应底庙府度座庭庶康廟廠廣廬延建开异弃弄式引弟张弦張強弹强彈归当录"
    "形彩影彼往征径待很律後徑徒得從御復微徵德心必忆忍志忘忙忠忧快念忽怀态怎怒怕怜思急性怨怪总恐恨恩息恶悠悬悲"
    "悽情惊惜惟惡想愁意愛感愧愿態慢慶憂憐憑憶應懷懸戎成我或战戰戶户房所手才打执扩扬扶批找承技把投抗折护报抱拂"
    "担拉招拜括拿持指按挥换据授掌排採探接控推提揚換揮搖携摇擊擔據擴攜支收改攻放政故效敌救敗教敢散敬数整敵數文"
    "斗料斜断斯新斷方於施旁旅旋族无既日旧早时昌明昏易昔星映春昭是昼显時晉晋晓晚晝普景晴智暖暗暮曉曰曲更書曹曾"
    "最會月有服望朝期木未末本术朱机杀杂权李材村杖杜条来杨杯東松板极构枕林果枝枪枯架某查柳标树栖校样核根格桂桃"
    "案桑桥梁梅條梦检棄棲植楊楚業極楼榮構槍樂樓標模樣横樹橋機橫檢權次欢欧欲歌歐歡止正此步武歲歷歸死殊残殘段殺"
    "殿母每毒比毕毛毫氏民气氣水永求汉汝江池汤決沈沉沒沙没河油治沿況泉法波泥注泪泽洋洗洛洞洪洲活派流浅测济浩浪"
    "浮海消涯涼淚淡淮深淺清渐減渠温測港游湖湯湾源準溪溫滅满滿演漢漫漸澤激濟灣火灭灯灵炮点為烈烏烟烦热焉無然煙"
    "照煩熟熱燈燕營爭爱爲父爷爺爾牀牆片版牌牙牛物特状犹狀狂独献猶獨獲獻玄率玉王环现珠班現球理琴環甘甚生產用田"
    "由甲申电男画界留畢略畫異當疏疑疾病痛登發白百的皆皇皮盈益监盖盘盛盡監盤目直相省眉看真眠眼着督矣知短石矿研"
    "破础确碧確礎礦示礼社祕祖神票祿禁禄禅福禪禮离秀秋种科秘秦积称移程種稱稳積穩究穷空穿突窗窮立站竟章童端竹笑"
    "笔符第筆等筑答策简算管節範篇築簡簾米类精系紀約紅納級紛素索紧紫累細終組結絕給統絲經綠維網緊線緣編練縣縱總"
    "織繞繼續红约级纪纳纵纷线练组细织终经结绕给绝统继续维绿编缘网罗罢罪置罷羅美羣群義羽翁習翠翻老考者而耕耳聊"
    "职联聖聚聞聯聲職聽肉肠股肯育背胜胡能脈脉脑脚脫脱脸腦腳腸臉臣臥臨自至致臺與興舉舊舍舞舟航般船良色艺节花芳"
    "苍苏若苦英范茫茲茶荆草荊荐荒荡荣药荷莫莲获菊菜華营萧萬落葉著蒙蒼蓋蓬蓮蕩蕭薄薦藏藝藥蘇蘭虎處虚虛號虽血衆"
    "行術街衛衝衣补表衰被装裏補裝襄西要覆見規視親覺觀见观规视觉角解言計訓記設許訴詔評詞試詩話該認語誠說誰調談"
    "請論諸謀謂講謝證識警議護讀變讓计认让训议记讲许论设证评识诉词诏试诗诚话该语说请诸读谁调谈谋谓谢谷豈豐象負"
    "財貧貨責貴買費資賊賓賜賞賢賣賦質賽负财责贤败货质贫贵费贼资赋赏赐赛赤走赶起超越趕足跟跡路身車軍軒軟較載輕"
    "輪輯輸轄轉车轩转轮软轻载较辑输辖辛辞辦辭辰農边达迁过迎运近还这进远连迟述迷迹追退送适选逐這通速造逢連進遂"
    "遇遊運過道達遗遙遠遣遥適遲遷選遺避還邊邑那邦邻郎郡部都鄂鄉鄰配酒醉醒醫采里重野量金銀銷錄錢錦錯鍾鎮鏡鐵钟"
    "钱铁银销错锦镇镜長长門開閑閒間閣闕關门问闲间闻阁阙队防阳阴阵阶阿附际陆陈降限院陣除险陰陳陵陸陽隊階随隐隔"
    "際隨險隱难雁雄雅集雖雙雜雞離難雨雪雲雷電雾需霜霞霧露靈青静靜非靠面革音響頂項順須預頓領頭頻題額顏顔願類顧"
    "顯顶项顺须顾顿预领频题颜额風飄风飘飛飞食飢飯飲養餘館饥饭饮馆首香馬馳駕騎驅驗驚马驰驱驾验骑骨體高髮鬓鬢鬥"
    "鬼魂魚鮮鱼鲜鳥鳳鳴鴻鶴鸟鸡鸣鸿鹤鹹麼黃黄黑點黨鼎鼓齊齐龍龙"
)

RARE, COMMON_HAN, ASCII, OTHER_SCRIPT = range(4)
"""Classes of characters. RARE: other Han characters."""


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint8]:
    """The class of every code point. CJK punctuation and full-width forms are ASCII's equals here: they say
    nothing about the encoding."""
    table = np.full(0x110000, OTHER_SCRIPT, dtype=np.uint8)
    table[:0x80] = table[0x3000:0x3040] = table[0xFF00:0xFF66] = table[0x2010:0x2040] = ASCII
    for low, high in ((0x3400, 0xA000), (0xF900, 0xFB00), (0x20000, 0x33480)):
        table[low:high] = RARE
    table[[ord(c) for c in COMMON]] = COMMON_HAN
    table[[ord(c) for c in "□〓■\u3007"]] = ASCII  # marks of lost characters, and the zero
    return table


def common_share(text: str) -> float:
    """Share of the common characters among all that are neither ASCII nor punctuation; 0 where none are."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    counts = np.bincount(class_table()[codes], minlength=4)
    known = counts[RARE] + counts[COMMON_HAN] + counts[OTHER_SCRIPT]
    return float(counts[COMMON_HAN] / known) if known else 0.0
